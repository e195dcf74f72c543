"""Topics of Apache Kafka."""

from tidelog.connectors.kafka.client import DeadLetterTopic
from tidelog.connectors.kafka.reading.records import KafkaRecord
from tidelog.connectors.kafka.reading.source import KafkaSource
from tidelog.connectors.kafka.writing.sink import KafkaSink

__all__ = ["DeadLetterTopic", "KafkaRecord", "KafkaSink", "KafkaSource"]
