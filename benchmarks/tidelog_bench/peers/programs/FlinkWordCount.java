import java.io.FileReader;
import java.io.Reader;
import java.time.Duration;
import java.util.Properties;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.file.src.FileSource;
import org.apache.flink.connector.file.src.reader.TextLineInputFormat;
import org.apache.flink.core.fs.Path;
import org.apache.flink.streaming.api.datastream.SingleOutputStreamOperator;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.streaming.api.functions.sink.PrintSink;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;
import org.apache.flink.util.Collector;

/**
 * The word count on Flink's DataStream API: SETTINGS INPUT, and `count` to print each count.
 *
 * <p>The operators with state have fixed ids, so a run that prints restores what one that drops
 * its counts has stored.
 */
public final class FlinkWordCount {
  private FlinkWordCount() {}

  static final class Count extends KeyedProcessFunction<String, String, Tuple2<String, Long>> {
    private static final long serialVersionUID = 1L;
    private transient ValueState<Long> state;
    private transient Tuple2<String, Long> counted;

    @Override
    public void open(OpenContext context) {
      state = getRuntimeContext().getState(new ValueStateDescriptor<>("count", Types.LONG));
      counted = new Tuple2<>();
    }

    @Override
    public void processElement(String word, Context context, Collector<Tuple2<String, Long>> out)
        throws Exception {
      Long before = state.value();
      Long now = before == null ? 1L : before + 1L;
      state.update(now);
      // Object reuse is on: the sink has done with it when `collect` returns.
      counted.setFields(word, now);
      out.collect(counted);
    }
  }

  public static void main(String[] arguments) throws Exception {
    Properties settings = new Properties();
    try (Reader reader = new FileReader(arguments[0])) {
      settings.load(reader);
    }
    Configuration configuration = new Configuration();
    settings.forEach((name, value) -> configuration.setString((String) name, (String) value));
    StreamExecutionEnvironment environment =
        StreamExecutionEnvironment.createLocalEnvironment(configuration);
    FileSource<String> words =
        FileSource.forRecordStreamFormat(new TextLineInputFormat(), new Path(arguments[1]))
            .monitorContinuously(Duration.ofMillis(250))
            .build();
    SingleOutputStreamOperator<Tuple2<String, Long>> counts =
        environment
            .fromSource(words, WatermarkStrategy.noWatermarks(), "words")
            .uid("words")
            .keyBy(word -> word, Types.STRING)
            .process(new Count(), Types.TUPLE(Types.STRING, Types.LONG))
            .uid("counts");
    if (arguments.length > 2) {
      counts.sinkTo(new PrintSink<>(arguments[2])).uid("sink");
    } else {
      counts.sinkTo(new DiscardingSink<>()).uid("sink");
    }
    environment.execute("word-count");
  }
}
