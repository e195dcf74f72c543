"""Java objects of Hadoop and of the plug-in's storage, for tests that drive them from Python."""

from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JJavaError

FILE_EXISTS = "org.apache.hadoop.fs.FileAlreadyExistsException"


@dataclass(frozen=True)
class Files:
    """`AtomicFiles` below one directory; files are named relative to it."""

    jvm: Any
    root: str
    java: Any

    @classmethod
    def open(cls, jvm: Any, root: str, options: dict[str, str]) -> "Files":
        conf = jvm.org.apache.hadoop.conf.Configuration()
        # Hadoop keeps one client per bucket and user, whatever the settings are.
        conf.set("fs.s3a.impl.disable.cache", "true")
        for key, value in options.items():
            conf.set(key, value)
        path = jvm.org.apache.hadoop.fs.Path(root)
        return cls(jvm, root, jvm.tidelog.spark.storage.AtomicFiles.open(path, conf))

    def path(self, name: str) -> Any:
        return self.jvm.org.apache.hadoop.fs.Path(f"{self.root}/{name}")

    def create(self, name: str, content: bytes, *, overwrite: bool = False) -> Any:
        """A stream with the content written and not closed."""
        stream = self.java.createAtomic(self.path(name), overwrite)
        stream.write(content)
        return stream

    def write(self, name: str, content: bytes, *, overwrite: bool = False) -> None:
        self.java.write(self.path(name), content, overwrite)

    def read(self, name: str, *part: int) -> bytes:
        return bytes(self.java.read(self.path(name), *part))

    def names(self, directory: str = "") -> list[str]:
        found = self.java.manager().list(self.path(directory))
        return sorted(status.getPath().getName() for status in found)


def error_of(thrown: Py4JJavaError) -> str:
    """Class of the Java exception."""
    name: str = thrown.java_exception.getClass().getName()
    return name
