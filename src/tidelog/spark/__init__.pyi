"""The public API for Spark: each name with the module that it is loaded from on first use."""

from .batches import BatchReport as BatchReport
from .batches import batch_report as batch_report
from .batches import follow_batches as follow_batches
from .handover.positions import UnreadFiles as UnreadFiles
from .handover.positions import starting_offsets as starting_offsets
from .handover.positions import unread_files as unread_files
from .job.run import JobQuery as JobQuery
from .job.sources import SourceOptions as SourceOptions
from .jobs import run as run
from .jobs import run_operator as run_operator
from .plugin.jar import compile_jar as compile_jar
from .plugin.jar import plugin_jar as plugin_jar
from .plugin.settings import configure as configure
from .plugin.settings import settings as settings
from .plugin.toolchain import Spark as Spark
from .plugin.toolchain import require_pyspark as require_pyspark
from .processor.transform import transform as transform
from .source.datasource import TidelogDataSource as TidelogDataSource
