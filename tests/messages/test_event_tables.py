import msgspec
import pytest

from mcptally.messages import event_tables
from mcptally.messages.call_tables import PairedCalls
from mcptally.messages.decode import decode
from mcptally.messages.integrity import deduplicate
from mcptally.messages.pair import pair
from mcptally.messages.sessions import assign_sessions
from mcptally.messages.struct_columns import scalar_types
from mcptally.transcript import events
from tests.transcripts import c2s, call, opened, s2c, text, write

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


def test_paired_calls_have_exactly_the_declared_columns(tmp_path):
    files = [write(tmp_path / "a.jsonl", [opened(), c2s(1, call(1)), s2c(2, text(1))])]
    decoded = deduplicate(decode(files), ["a.jsonl"], files)
    assert pair(decoded, assign_sessions(decoded)).calls.schema == PairedCalls.schema()


def test_an_archive_without_messages_gives_empty_declared_tables(tmp_path):
    files = [write(tmp_path / "a.jsonl", [opened()])]
    decoded = decode(files)
    assert pair(decoded, assign_sessions(decoded)).calls.schema == PairedCalls.schema()
