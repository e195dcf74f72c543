"""Values that states of older releases hold stay readable, and are still written so."""

import msgspec

from tests.golden.golden_values import VALUES
from tests.golden.writing import FOLDER
from tests.support.values import form_of
from tidelog.state.objects.values import ObjectEncoding


def test_values_of_version_1_are_read_and_written() -> None:
    stored = msgspec.msgpack.decode((FOLDER / "values_v1.bin").read_bytes(), type=list[bytes])
    encoding = ObjectEncoding("golden")
    assert form_of(list(map(encoding.decode, stored))) == form_of(VALUES)
    assert list(map(encoding.encode, VALUES)) == stored
