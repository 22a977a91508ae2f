"""Extracts messages from events: complete frames, members of batches, and truncated frames."""

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import Raw

from mcptally.transcript.events import MSG_DECODER, MessageEvent, Msg, RawFrame


def message_from_head(frame: RawFrame) -> MessageEvent:
    """Build a message from the members that were found in a truncated frame's head."""
    name = {} if frame.name is None else {"name": frame.name}
    message = Msg(id=frame.id, method=frame.method)
    if frame.method is not None:
        message.params = Raw(msgspec.json.encode(name))
    else:
        # A recorded frame without `isError` near its start or end is not an error. Imported logs
        # may omit the member.
        is_known = frame.is_error is not None or not frame.derived
        message.result = Raw(
            msgspec.json.encode({"isError": bool(frame.is_error)} if is_known else {})
        )
    return MessageEvent(
        recording=frame.recording,
        seq=frame.seq,
        ts_ns=frame.ts_ns,
        v=frame.v,
        dir=frame.dir,
        msg=message,
        scope=frame.scope,
        bytes=frame.bytes,
        sse_id=frame.sse_id,
        model=frame.model,
    )


def split_batches(
    items: Sequence[MessageEvent],
) -> tuple[list[Msg], npt.NDArray[np.int64] | None, npt.NDArray[np.uint32], npt.NDArray[np.bool_]]:
    """Split batches into single messages.

    Returns four columns: messages, indexes of their events, positions in a batch, and `batch`
    flags. The column of event indexes is None if every event has exactly one message.
    """
    msgs: list[Any] = [item.msg for item in items]
    batches = [place for place, msg in enumerate(msgs) if msg.__class__ is not Msg]
    if not batches:
        return msgs, None, np.zeros(len(msgs), np.uint32), np.zeros(len(msgs), np.bool_)
    sizes = np.ones(len(msgs), np.int64)
    messages: list[Msg] = []
    start = 0
    for place in batches:
        # An empty batch has no messages, but still gets a row.
        members = [MSG_DECODER.one(member) for member in msgs[place]] or [Msg()]
        messages += msgs[start:place]
        messages += members
        sizes[place] = len(members)
        start = place + 1
    messages += msgs[start:]
    owner = np.repeat(np.arange(len(msgs)), sizes)
    index = np.arange(owner.size) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    batch = np.zeros(len(msgs), np.bool_)
    batch[[place for place in batches if msgs[place]]] = True
    return messages, owner, index.astype(np.uint32), batch[owner]
