import msgspec
import pytest

from mcptally.messages import event_tables
from mcptally.messages.struct_columns import scalar_types
from mcptally.transcript import events

STRUCTS = {
    event_tables.DecodedMessages: [events.MessageEvent],
    event_tables.RequestParams: [events.Params],
    event_tables.Replies: [events.Result],
    event_tables.RawFrames: [events.RawFrame],
    event_tables.HttpEvents: [events.HttpEvent, events.Headers],
    event_tables.Opens: [events.OpenEvent],
    event_tables.Closes: [events.CloseEvent],
    event_tables.Gaps: [events.GapEvent],
    event_tables.StderrEvents: [events.StderrEvent],
}
META = {
    event_tables.RequestParams: events.RequestMeta,
    event_tables.Replies: events.ResultMeta,
}


@pytest.mark.parametrize("table", STRUCTS, ids=lambda table: table.__name__)
def test_every_decoded_member_has_a_declared_column_of_its_type(table):
    decoded = {}
    for struct in STRUCTS[table]:
        decoded |= scalar_types(struct)
    if table in META:
        decoded |= {f"meta_{name}": kind for name, kind in scalar_types(META[table]).items()}
    decoded.pop("v", None)
    assert decoded.items() <= dict(table.schema()).items()


def test_every_event_has_a_table():
    tables = {struct for structs in STRUCTS.values() for struct in structs}
    assert set(events.FRAME_OF_EVENT) <= tables
    assert all(issubclass(struct, msgspec.Struct) for struct in tables)
