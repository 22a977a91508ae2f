"""Podcasts: asynchronous tools on FastMCP, with a client for an API as many servers have one."""

import asyncio
import base64
import configparser
import io
import json
import os
import re
import shutil
import socket
import sqlite3
import struct
import sys
import wave
import xml.etree.ElementTree as ET
from contextlib import closing
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, Literal, Optional

import httpx
import requests
from fastmcp import Context, FastMCP
from fastmcp.exceptions import ToolError
from kit import CLOSED_PORT, UPSTREAM, fails, hides, works
from native import also, run
from pydantic import BaseModel, Field

mcp = FastMCP("podcasts", mask_error_details="masked" in sys.argv)
ROOT = Path("media")


def prepare():
    for folder in ("audio", "feeds", "covers", "transcripts"):
        (ROOT / folder).mkdir(parents=True, exist_ok=True)
    with wave.open(str(ROOT / "audio/ep1.wav"), "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(2)
        sound.setframerate(8000)
        sound.writeframes(bytes(16000))
    (ROOT / "audio/ep3.wav").write_bytes(b"RIFF\x24\x00\x00\x00WAVE")
    (ROOT / "feeds/main.xml").write_text(
        "<rss><channel><title>Tide &amp; Time</title></channel></rss>"
    )
    (ROOT / "feeds/bonus.xml").write_text("<rss><channel><title>Tide & Time</title></channel>")
    (ROOT / "transcripts/ep1.json").write_text('{"segments": [{"start": 0, "text": "Hello"}]}')
    (ROOT / "transcripts/ep2.json").write_text('{"segments": [{"begin": 0, "text": "Hi"}]}')
    (ROOT / "transcripts/ep3.json").write_text("")
    (ROOT / "covers/ep1.b64").write_text("iVBORw0KGgo=")
    (ROOT / "covers/ep2.b64").write_text("iVBORw0KGgo")
    (ROOT / "hosts.ini").write_text("anna = host\n")
    (ROOT / "chapters.bin").write_bytes(b"\x00\x01")
    (ROOT / "upload.part").unlink(missing_ok=True)
    (ROOT / "upload.part").symlink_to("/dev/full")
    (ROOT / "normalize.sh").write_text("#!/opt/sox/bin/sh\nexit 0\n")
    (ROOT / "normalize.sh").chmod(0o755)
    (ROOT / "mix.sh").write_text(
        "#!/bin/sh\necho \"mix: unknown preset 'broadcast2'\" >&2\nexit 64\n"
    )
    (ROOT / "mix.sh").chmod(0o755)
    (ROOT / "stats.db").unlink(missing_ok=True)
    with closing(sqlite3.connect(ROOT / "stats.db")) as db:
        db.executescript(
            "CREATE TABLE plays (episode TEXT, n INT); INSERT INTO plays VALUES ('ep1', 40);"
        )
    (ROOT / "listeners.db").write_bytes(b"not sqlite at all " * 90)


prepare()


@dataclass
class Episode:
    id: str
    title: Optional[str]
    minutes: Any
    published: str
    guests: Any
    status: str = "published"


EPISODES = {
    "ep1": Episode("ep1", "Low tide", 31, "Mon, 02 Nov 2026 06:00:00 +0100", ["Ada", "Bo"]),
    "ep2": Episode("ep2", None, "28:40", "2026-11-09", None),
    "ep3": Episode("ep3", "Spring tide", 0, "", [], "draft"),
}


class NotFound(Exception):
    pass


def lookup(episode_id: str) -> Episode:
    episode = EPISODES.get(episode_id)
    if not episode:
        raise ToolError(f"🔍 Episode `{episode_id}` not found. Use list_episodes to see valid ids.")
    return episode


class Hosting:
    """Client of the company that hosts the show."""

    def __init__(self, timeout=0.4):
        self.http = httpx.AsyncClient(base_url=UPSTREAM, timeout=timeout)

    async def request(self, path: str) -> Any:
        try:
            response = await self.http.get(path)
            response.raise_for_status()
            return response.json()
        except httpx.HTTPStatusError as e:
            raise ToolError(
                f"Hosting API error: {e.response.status_code} - {e.response.text}"
            ) from e
        except httpx.TimeoutException as e:
            raise ToolError("Hosting API request timed out") from e
        except httpx.RequestError as e:
            raise ToolError(f"Hosting API request failed: {type(e).__name__}: {e}") from e
        except json.JSONDecodeError as e:
            raise ToolError(f"Hosting API returned invalid JSON: {e}") from e


class EpisodeOut(BaseModel):
    id: str
    title: str
    minutes: int = Field(gt=0)


@mcp.tool
async def list_episodes() -> str:
    """All episodes."""
    return "\n".join(f"{e.id}: {e.title or '(untitled)'}" for e in EPISODES.values())


@mcp.tool
async def get_episode(episode_id: str) -> EpisodeOut:
    """One episode."""
    e = lookup(episode_id)
    return EpisodeOut(id=e.id, title=e.title, minutes=e.minutes)


@mcp.tool
def guest_list(episode_id: str) -> str:
    """Guests of an episode."""
    return ", ".join(sorted(lookup(episode_id).guests))


@mcp.tool
def release_weekday(episode_id: str) -> str:
    """Weekday of the release."""
    return f"{parsedate_to_datetime(lookup(episode_id).published):%A}"


@mcp.tool
def words_per_minute(episode_id: str, words: int = 4000) -> str:
    """Speed of speech."""
    try:
        return str(words // lookup(episode_id).minutes)
    except Exception as e:
        raise ToolError(f"💥 words_per_minute failed: {e!r}")


@mcp.tool
def audio_length(episode_id: str) -> str:
    """Length of the audio file."""
    episode = lookup(episode_id)
    with wave.open(f"media/audio/{episode.id}.wav") as sound:
        return f"{sound.getnframes() / sound.getframerate()} s"


@mcp.tool
def feed_title(feed: Literal["main", "bonus"]) -> str:
    """Title of a feed."""
    try:
        return ET.parse(ROOT / "feeds" / f"{feed}.xml").findtext("channel/title")
    except ET.ParseError as e:
        raise ToolError(f"Feed could not be parsed: {e}")


@mcp.tool
def transcript(episode_id: str) -> str:
    """Transcript of an episode."""
    segments = json.loads((ROOT / f"transcripts/{lookup(episode_id).id}.json").read_text())[
        "segments"
    ]
    return "\n".join(f"{s['start']:>4} {s['text']}" for s in segments)


@mcp.tool
def cover(episode_id: str) -> str:
    """Cover picture."""
    data = base64.b64decode((ROOT / f"covers/{episode_id}.b64").read_text())
    return f"{len(data)} bytes"


@mcp.tool
def host_role(name: str) -> str:
    """Role of a host."""
    parser = configparser.ConfigParser()
    parser.read(ROOT / "hosts.ini")
    return parser["hosts"][name]


@mcp.tool
def chapters(episode_id: str) -> list:
    """Chapter marks of an episode."""
    raw = (ROOT / "chapters.bin").read_bytes()
    try:
        return list(struct.unpack(">IHH", raw))
    except struct.error as e:
        raise ToolError(f"Chapter index corrupt ({e})")


@mcp.tool
async def transcode(episode_id: str, to: str) -> str:
    """Convert audio."""
    if not shutil.which("ffmpeg"):
        raise ToolError("❌ ffmpeg not found in PATH – install ffmpeg and restart the server")
    return "ok"


@mcp.tool
async def waveform(episode_id: str) -> str:
    """Picture of the wave form."""
    process = await asyncio.create_subprocess_exec(
        "audiowaveform", "-i", f"{episode_id}.wav", stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    return out.decode()


@mcp.tool
async def normalize(episode_id: str) -> str:
    """Normalise loudness."""
    try:
        process = await asyncio.create_subprocess_exec(str((ROOT / "normalize.sh").absolute()))
        return str(await process.wait())
    except FileNotFoundError as e:
        raise ToolError(f"normalize: {e.strerror}: {Path(e.filename).name}")


@mcp.tool
async def mix(episode_id: str) -> str:
    """Mix the tracks."""
    process = await asyncio.create_subprocess_shell(
        "media/mix.sh", stderr=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    _, err = await process.communicate()
    if process.returncode:
        raise ToolError(f"mix exited with {process.returncode}\nstderr: {err.decode()}")
    return "mixed"


@mcp.tool
def speech_to_text(episode_id: str) -> str:
    """Make a transcript."""
    try:
        import whisper
    except ImportError as e:
        raise ToolError(
            "Transcription needs openai-whisper: pip install 'podcasts-mcp[whisper]'"
        ) from e
    return whisper.__name__


@mcp.tool
def voice_over(text: str) -> str:
    """Speak a text."""
    token = os.environ.get("TTS_TOKEN")
    if not token:
        return_code = "E_NO_TOKEN"
        raise ToolError(
            json.dumps({"code": return_code, "message": "server has no TTS token configured"})
        )
    return token


@mcp.tool
def plays(episode_id: str) -> str:
    """How often an episode was played."""
    table = "plays" if episode_id == "ep1" else "plays_legacy"
    with closing(sqlite3.connect(ROOT / "stats.db")) as db:
        return str(
            db.execute(f"SELECT sum(n) FROM {table} WHERE episode = ?", (episode_id,)).fetchone()[0]
        )


@mcp.tool
def listeners(country: str) -> str:
    """Listeners of a country."""
    with closing(sqlite3.connect(ROOT / "listeners.db")) as db:
        return str(
            db.execute("SELECT count(*) FROM listeners WHERE country = ?", (country,)).fetchone()
        )


@mcp.tool
def related(n: int) -> str:
    """Follow related episodes."""

    def follow(k):
        return 0 if k == 0 else 1 + follow(k - 1)

    return str(follow(n))


@mcp.tool
async def season_summary(season: int) -> str:
    """Summary of a season."""
    if season != 2:
        raise Exception
    return "12 episodes"


@mcp.tool
async def jingle(kind: Literal["intro", "outro"]) -> str:
    """Text of a jingle."""
    texts = {"intro": lambda: "Welcome!"}
    return texts.get(kind)()


@mcp.tool
async def sponsor(episode_id: str, ctx: Context) -> str:
    """Sponsor of an episode."""
    await ctx.info("looking up the sponsor")
    return lookup(episode_id).sponsor.name


@mcp.tool
async def publish(episode_id: str, dry_run: bool = True) -> str:
    """Publish an episode."""
    episode = lookup(episode_id)
    if dry_run:
        return "would publish"
    if episode.status == "published":
        raise ToolError("Nothing to do: `ep1` is already live 🎉")
    return await Hosting().request("/503")


@mcp.tool
async def show_stats(show: str) -> Any:
    """Statistics of a show."""
    if show == "own":
        return {"plays": 1204}
    path = {
        "partner": "/502",
        "archive": "/slow",
        "charts": "/429",
        "private": "/403",
        "legacy": "/truncated",
        "gone": "/404",
    }
    return await Hosting().request(path[show])


@mcp.tool
async def submit_to_directory(url: str) -> str:
    """Submit the show to a directory."""
    hosting = Hosting()
    hosting.http.base_url = "https://directory.podcasts.invalid"
    return await hosting.request(f"/add/{url}")


@mcp.tool
def ping_players(episode_id: str) -> str:
    """Tell players about an episode."""
    if episode_id == "ep2":
        return "2 players notified"
    url = f"{UPSTREAM}/reset" if episode_id == "ep1" else UPSTREAM.replace("http:", "https:")
    return requests.get(url, timeout=1).text


@mcp.tool
async def post_to_chat(text: str) -> str:
    """Post to the chat of listeners."""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", CLOSED_PORT)
    except OSError as e:
        raise ToolError(f"chat bridge offline [{e.errno}]")
    return text


@mcp.tool
async def render_trailer(seconds: int) -> str:
    """Render the trailer."""
    async with asyncio.timeout(0.1):
        await asyncio.sleep(seconds)
    return "trailer.mp3"


@mcp.tool
def upload_audio(episode_id: str) -> str:
    """Upload audio."""
    if episode_id == "ep1":
        with open(ROOT / "upload.part", "wb") as file:
            file.write(bytes(100000))
    return "uploaded"


@mcp.tool
async def ad_slots(episode_id: str) -> str:
    """Ads that are booked for an episode."""
    reply = await Hosting().http.get("/html")
    if not reply.headers["content-type"].startswith("application/json"):
        raise ToolError(f"Ad server: unexpected content type {reply.headers['content-type']}")
    return reply.text


@mcp.tool
async def create_episode(title: str, explicit: bool = False) -> str:
    """Create a draft."""
    if not title:
        raise ToolError("`title` is required ✏️")
    if len(title) > 100:
        raise ToolError(f"Title too long ({len(title)}/100)")
    if title == "Low tide":
        raise ToolError("An episode called “Low tide” exists already (ep1)")
    return "ep4"


@mcp.tool
async def cut(start: str, end: str) -> str:
    """Cut a part of the audio."""
    for value in (start, end):
        if not re.fullmatch(r"\d\d:\d\d", value):
            raise ToolError(f"Couldn't understand the time code {value!r}, expected mm:ss")
    if end <= start:
        raise ToolError("end before start")
    return "cut"


@mcp.tool
async def delete_episode(episode_id: str) -> str:
    """Delete a draft."""
    if lookup(episode_id).status == "published":
        raise ToolError("🚫 Published episodes may only be deleted by an owner of the show.")
    return "deleted"


@mcp.tool
async def export_feed(format: str) -> str:
    """Export the feed."""
    if format != "rss":
        raise ToolError("Only RSS 2.0 for now, sorry!")
    return "<rss/>"


@mcp.tool
async def show_notes(episode_id: str) -> str:
    """Notes of an episode."""
    try:
        if episode_id not in EPISODES:
            raise NotFound(f"no episode {episode_id}")
        if episode_id == "ep3":
            return (ROOT / "notes" / "ep3.md").read_text()
        return f"# {EPISODES[episode_id].title.upper()}"
    except NotFound as e:
        return f"❌ {e}"
    except Exception as e:
        return f"❌ Something went wrong while rendering the notes: {e}"


@mcp.tool
async def platform_stats(platform: str) -> dict:
    """Plays per platform."""
    if platform == "web":
        return {"ok": True, "data": [{"episode": "ep1", "plays": 12}], "error": None}
    try:
        url = {
            "tv": f"http://localhost:{CLOSED_PORT}",
            "car": f"{UPSTREAM}/500",
            "watch": f"{UPSTREAM}/429",
        }
        requests.get(url[platform], timeout=1).raise_for_status()
    except requests.RequestException as e:
        return {"ok": False, "data": None, "error": {"type": type(e).__name__, "detail": str(e)}}
    return {}


@mcp.tool
async def job_status(job: str) -> str:
    """Status of a rendering job."""
    return {
        "j1": "Could not get the status: render farm did not answer (timeout after 30s)",
        "j2": "j2: failed 0, done 14, running 1",
        "j3": "Internal error [ref 5f1a]",
    }[job]


@mcp.tool
async def validate_feed(url: str) -> dict:
    """Check a feed."""
    if url.startswith("https:"):
        return {"valid": True, "warnings": []}
    return {
        "valid": False,
        "warnings": ["itunes:image missing"],
        "message": "Feed is not valid: 2 errors",
    }


@mcp.tool
async def search_episodes(query: str) -> list[dict]:
    """Search titles."""
    return [{"id": e.id} for e in EPISODES.values() if e.title and query in e.title]


@mcp.tool
async def player_logs() -> str:
    """What players reported."""
    return "ERR_NETWORK 3x (iOS)\nException in decoder: 1x (Android)\nHTTP 404 on /ep0.mp3: 12x"


@mcp.tool
async def encode(preset: str) -> dict:
    """Encode audio."""
    if preset == "music":
        return {
            "status": "failed",
            "stage": "encode",
            "reason": "encoder libmp3lame is not available on this machine",
        }
    return {"status": "finished", "stage": "encode", "reason": None}


@mcp.tool
async def chart_position(market: str) -> str:
    """Position in the charts."""
    try:
        if market == "US":
            await Hosting(0.2).request("/slow")
        if market in {"JP", "FR"}:
            await Hosting().request("/503" if market == "JP" else "/401")
    except ToolError as e:
        return f"😕 No chart position: {e}"
    return "17"


@mcp.tool
async def rename_guest(episode_id: str) -> dict:
    """Rename a guest."""
    if episode_id == "ep3":
        return {
            "renamed": False,
            "message": "You don't have permission to edit drafts of another team",
        }
    try:
        return {"renamed": True, "message": EPISODES[episode_id].guests[0]}
    except Exception as e:
        return {"renamed": False, "message": repr(e)}


@mcp.tool
async def reviews(episode_id: str) -> str:
    """Reviews of an episode."""
    return {
        "ep1": "★★★★★ Loved the part about HTTP 500 errors!\n★☆☆☆☆ Download failed twice, terrible",
        "ep3": "No reviews yet.",
    }[episode_id]


@mcp.tool
async def is_explicit(episode_id: str) -> dict:
    """Whether an episode is explicit."""
    return {"explicit": False, "error_rate": 0.0, "blocked": episode_id == "ep2"}


# The calls stand apart from the functions: rich prints the lines around a failing one.
also("list_episodes", works(), works())
also(
    "get_episode",
    works(episode_id="ep1"),
    fails("crash", episode_id="ep2"),
    fails("crash", episode_id="ep3"),
    fails("not_found", episode_id="ep77"),
    works(episode_id="ep1"),
)
also(
    "guest_list", works(episode_id="ep1"), fails("crash", episode_id="ep2"), works(episode_id="ep3")
)
also(
    "release_weekday",
    works(episode_id="ep1"),
    fails("crash", episode_id="ep3"),
    fails("crash", episode_id="ep2"),
)
also("words_per_minute", works(episode_id="ep1"), fails("crash", episode_id="ep3"))
also(
    "audio_length",
    works(episode_id="ep1"),
    fails("misconfig", episode_id="ep3"),
    fails("misconfig", episode_id="ep2"),
)
also(
    "feed_title",
    works(feed="main"),
    fails("misconfig", feed="bonus"),
    fails("validation", feed="other"),
)
also(
    "transcript",
    works(episode_id="ep1"),
    fails("crash", episode_id="ep2"),
    fails("misconfig", episode_id="ep3"),
)
also("cover", works(episode_id="ep1"), fails("misconfig", episode_id="ep2"))
also("host_role", fails("misconfig", name="anna"), fails("misconfig", name="ben"))
also("chapters", fails("misconfig", episode_id="ep1"))
also(
    "transcode",
    fails("misconfig", episode_id="ep1", to="mp3"),
    fails("misconfig", episode_id="ep1", to="ogg"),
)
also("waveform", fails("misconfig", episode_id="ep1"))
also("normalize", fails("misconfig", episode_id="ep1"), fails("misconfig", episode_id="ep3"))
also("mix", fails("misconfig", episode_id="ep1"), fails("misconfig", episode_id="ep2"))
also("speech_to_text", fails("misconfig", episode_id="ep1"))
also("voice_over", fails("misconfig", text="hello"), fails("misconfig", text="bye"))
also("plays", works(episode_id="ep1"), fails("misconfig", episode_id="ep2"))
also("listeners", fails("misconfig", country="AT"), fails("misconfig", country="NZ"))
also("related", works(n=3), fails("crash", n=1200), works(n=5), fails("crash", n=99999))
also("season_summary", fails("crash", season=1), works(season=2), fails("crash", season=3))
also("jingle", works(kind="intro"), fails("crash", kind="outro"))
also("sponsor", fails("crash", episode_id="ep1"), fails("crash", episode_id="ep3"))
also(
    "publish",
    works(episode_id="ep3", dry_run=True),
    fails("upstream", episode_id="ep3", dry_run=False),
    fails("state", episode_id="ep1", dry_run=False),
    fails("validation", episode_id="ep3", dry_run="perhaps"),
)
also(
    "show_stats",
    works(show="own"),
    fails("upstream", show="partner"),
    fails("timeout", show="archive"),
    fails("quota", show="charts"),
    fails("auth", show="private"),
    fails("upstream", show="legacy"),
    fails("not_found", show="gone"),
    works(show="own"),
)
also("submit_to_directory", fails("network", url="tide"), fails("network", url="time"))
also(
    "ping_players",
    fails("network", episode_id="ep1"),
    works(episode_id="ep2"),
    fails("network", episode_id="ep3"),
)
also("post_to_chat", fails("down", text="New!"), fails("down", text="Hi"))
also("render_trailer", works(seconds=0), fails("timeout", seconds=3), works(seconds=0))
also("upload_audio", works(episode_id="ep2"), fails("internal", episode_id="ep1"))
also("ad_slots", fails("upstream", episode_id="ep1"), fails("upstream", episode_id="ep2"))
also(
    "create_episode",
    works(title="Neap tide"),
    fails("validation", title=""),
    fails("validation", title="x" * 130),
    fails("conflict", title="Low tide"),
    fails("validation", name="Neap tide"),
    fails("validation", title=None),
)
also(
    "cut",
    works(start="00:10", end="00:20"),
    fails("validation", start="00:30", end="00:20"),
    fails("payload", start="ten", end="00:20"),
)
also(
    "delete_episode",
    fails("permission", episode_id="ep1"),
    fails("not_found", episode_id="ep9"),
    works(episode_id="ep3"),
)
also("export_feed", works(format="rss"), fails("unsupported", format="atom"))
also(
    "show_notes",
    works(episode_id="ep1"),
    hides("crash", episode_id="ep2"),
    hides("misconfig", episode_id="ep3"),
    hides("not_found", episode_id="ep8"),
)
also(
    "platform_stats",
    works(platform="web"),
    hides("network", platform="tv"),
    hides("upstream", platform="car"),
    hides("quota", platform="watch"),
)
also("job_status", hides("timeout", job="j1"), works(job="j2"), hides("internal", job="j3"))
also("validate_feed", works(url="https://example.org/feed"), works(url="feed"))
also("search_episodes", works(query="sailing"), works(query="tide"))
also("player_logs", works())
also("encode", works(preset="voice"), hides("misconfig", preset="music"))
also(
    "chart_position",
    works(market="AT"),
    hides("timeout", market="US"),
    hides("upstream", market="JP"),
    hides("auth", market="FR"),
)
also(
    "rename_guest",
    works(episode_id="ep1"),
    hides("crash", episode_id="ep2"),
    hides("permission", episode_id="ep3"),
)
also("reviews", works(episode_id="ep1"), works(episode_id="ep3"))
also("is_explicit", works(episode_id="ep1"), works(episode_id="ep2"))
also("upload_cover", fails("unknown", episode_id="ep1", file="c.png"))

if __name__ == "__main__":
    run(lambda: mcp.run(show_banner=False))
