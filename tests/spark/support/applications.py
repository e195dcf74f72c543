"""The settings of applications: the chosen store, eager house-keeping, the faulty file system."""

from pathlib import Path

from tests.spark.support import faults, stores


def settings(control: Path, spark_home: Path | None = None, **more: str) -> dict[str, str]:
    """Settings for an application that obeys the rules in `control`; `more` as in the options of
    the plug-in.
    """
    store = stores.store_settings(spark_home=spark_home, **more)
    return {
        **store,
        **stores.EAGER,
        **faults.settings(control, store.get("spark.jars", ""), spark_home),
    }
