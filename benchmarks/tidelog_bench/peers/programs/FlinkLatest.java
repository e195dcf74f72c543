import java.io.FileReader;
import java.io.IOException;
import java.io.PrintWriter;
import java.io.Reader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.Properties;
import java.util.concurrent.locks.LockSupport;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.datagen.source.DataGeneratorSource;
import org.apache.flink.connector.datagen.source.GeneratorFunction;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;
import org.apache.flink.util.Collector;

/**
 * The highest number of each key, and when each sixteenth number was handled: SETTINGS NOTES KEYS
 * SEED RATE SECONDS, with rate 0 for as fast as it goes; so many seconds after every key was
 * handled the notes appear in their file, and the job goes on.
 */
public final class FlinkLatest {
  private FlinkLatest() {}

  /** The first numbers have a key each, those after them one at random. */
  static final class Numbers implements GeneratorFunction<Long, Tuple2<String, Long>> {
    private static final long serialVersionUID = 1L;
    private static final String ZEROS = "0000000000000000";
    private final long keys;
    private final long seed;
    private final double rate;
    private transient long startNs;

    Numbers(long keys, long seed, double rate) {
      this.keys = keys;
      this.seed = seed;
      this.rate = rate;
    }

    @Override
    public Tuple2<String, Long> map(Long number) {
      if (rate > 0) {
        awaitDue(number);
      }
      long key = number < keys ? number : Long.remainderUnsigned(mixed(seed + number), keys);
      String hex = Long.toHexString(key);
      return Tuple2.of(ZEROS.substring(hex.length()) + hex, number);
    }

    private void awaitDue(long number) {
      long now = System.nanoTime();
      if (startNs == 0) {
        startNs = now;
      }
      long due = startNs + (long) (number * 1e9 / rate);
      while (now < due) {
        LockSupport.parkNanos(due - now);
        now = System.nanoTime();
      }
    }

    /** A step of https://prng.di.unimi.it/splitmix64.c. */
    private static long mixed(long value) {
      long z = value * 0x9E3779B97F4A7C15L;
      z = (z ^ (z >>> 30)) * 0xBF58476D1CE4E5B9L;
      z = (z ^ (z >>> 27)) * 0x94D049BB133111EBL;
      return z ^ (z >>> 31);
    }
  }

  static final class Latest extends KeyedProcessFunction<String, Tuple2<String, Long>, Long> {
    private static final long serialVersionUID = 1L;
    private transient ValueState<Long> state;

    @Override
    public void open(OpenContext context) {
      state = getRuntimeContext().getState(new ValueStateDescriptor<>("latest", Types.LONG));
    }

    @Override
    public void processElement(Tuple2<String, Long> keyed, Context context, Collector<Long> out)
        throws Exception {
      Long before = state.value();
      Long latest = before == null ? keyed.f1 : Long.valueOf(Math.max(before, keyed.f1));
      state.update(latest);
      out.collect(latest);
      notes.handled(keyed.f1);
    }
  }

  /** Of the one task that handles records; the JVM holds the whole cluster. */
  private static Notes notes;

  static final class Notes {
    private static final int EVERY = 16;
    private final Path file;
    private final long keys;
    private final long forNs;
    private long[] noted = new long[1 << 16];
    private int length;
    private long handled;
    private long filledNs;
    private boolean ended;

    Notes(Path file, long keys, double seconds) {
      this.file = file;
      this.keys = keys;
      this.forNs = (long) (seconds * 1e9);
    }

    void handled(long number) throws IOException {
      if (ended || handled++ % EVERY != 0) {
        return;
      }
      long now = System.nanoTime();
      if (length == noted.length) {
        noted = Arrays.copyOf(noted, 2 * length);
      }
      noted[length++] = now;
      noted[length++] = number;
      if (filledNs == 0 && number >= keys) {
        filledNs = now;
      }
      if (filledNs != 0 && now - filledNs >= forNs) {
        ended = true;
        write();
      }
    }

    private void write() throws IOException {
      Path partial = file.resolveSibling(file.getFileName() + ".partial");
      try (PrintWriter lines = new PrintWriter(Files.newBufferedWriter(partial))) {
        for (int i = 0; i < length; i += 2) {
          lines.println(noted[i] + " " + noted[i + 1]);
        }
      }
      Files.move(partial, file);
    }
  }

  public static void main(String[] arguments) throws Exception {
    Properties settings = new Properties();
    try (Reader reader = new FileReader(arguments[0])) {
      settings.load(reader);
    }
    Configuration configuration = new Configuration();
    settings.forEach((name, value) -> configuration.setString((String) name, (String) value));
    long keys = Long.parseLong(arguments[2]);
    notes = new Notes(Path.of(arguments[1]), keys, Double.parseDouble(arguments[5]));
    Numbers numbers =
        new Numbers(keys, Long.parseLong(arguments[3]), Double.parseDouble(arguments[4]));
    StreamExecutionEnvironment environment =
        StreamExecutionEnvironment.createLocalEnvironment(configuration);
    environment
        .fromSource(
            new DataGeneratorSource<>(
                numbers, Long.MAX_VALUE, Types.TUPLE(Types.STRING, Types.LONG)),
            WatermarkStrategy.noWatermarks(),
            "numbers")
        .keyBy(keyed -> keyed.f0, Types.STRING)
        .process(new Latest(), Types.LONG)
        .sinkTo(new DiscardingSink<>());
    environment.execute("latest");
  }
}
