"""Topics of Apache Kafka."""

from tidelog.connectors.kafka.records import DeadLetterTopic, KafkaRecord
from tidelog.connectors.kafka.sink import KafkaSink
from tidelog.connectors.kafka.source import KafkaSource

__all__ = ["DeadLetterTopic", "KafkaRecord", "KafkaSink", "KafkaSource"]
