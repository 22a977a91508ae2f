"""The messages that events hold: one, those of a batch, or one that is known by its head only."""

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import Raw

from mcptally.transcript.events import MSG, MessageEvent, Msg, RawFrame


def from_head(frame: RawFrame) -> MessageEvent:
    """What the recorder found in the head of a frame that it did not keep whole."""
    name = {} if frame.name is None else {"name": frame.name}
    message = Msg(id=frame.id, method=frame.method)
    if frame.method is not None:
        message.params = Raw(msgspec.json.encode(name))
    else:
        result = {} if frame.is_error is None else {"isError": frame.is_error}
        message.result = Raw(msgspec.json.encode(result))
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
    )


def unbatched(
    items: Sequence[MessageEvent],
) -> tuple[list[Msg], npt.NDArray[np.int64] | None, npt.NDArray[np.uint32], npt.NDArray[np.bool_]]:
    """The messages of all events; of which event each is (None: one each), its index, batch."""
    msgs: list[Any] = [item.msg for item in items]
    batches = [place for place, msg in enumerate(msgs) if msg.__class__ is not Msg]
    if not batches:
        return msgs, None, np.zeros(len(msgs), np.uint32), np.zeros(len(msgs), np.bool_)
    sizes = np.ones(len(msgs), np.int64)
    messages: list[Msg] = []
    begin = 0
    for place in batches:
        # A batch of nothing is no message, and still a row.
        members = [MSG.one(member) for member in msgs[place]] or [Msg()]
        messages += msgs[begin:place]
        messages += members
        sizes[place] = len(members)
        begin = place + 1
    messages += msgs[begin:]
    of = np.repeat(np.arange(len(msgs)), sizes)
    index = np.arange(of.size) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    batch = np.zeros(len(msgs), np.bool_)
    batch[[place for place in batches if msgs[place]]] = True
    return messages, of, index.astype(np.uint32), batch[of]
