"""Rules that a check on the wire cannot see, and why."""

from __future__ import annotations

UNSEEN = {
    "W-1.2": "a drawing; its requests are those of other rules",
    "W-1.3": "a list for clients; what a broker does is in the rules it names",
    "W-1.4": "a drawing; its requests are those of other rules",
    "W-3.1": "every integer of every check",
    "W-3.6": "every uuid of W-4.7",
    "W-4.0.1": "every api has version 0 alone",
    "W-4.3.3": "needs a disk that is slower than the client's timeout",
    "W-4.3.5": "a producer is forgotten after a day",
    "W-4.4.7": "needs bytes that change on the broker's disk",
    "W-4.25": "the codes are those of each api's own rules",
    "W-5.7": "a cleaning comes when the broker chooses",
    "W-7.2": "how a client reads a code",
    "W-9": "files are not on the wire",
    "W-9.1": "files are not on the wire",
    "W-9.2": "files are not on the wire",
    "W-9.3": "files are not on the wire",
    "W-9.4": "what members send each other; the broker reads only the topics, W-4.19",
    "W-10": "examples, which a test replays against a broker",
    "W-11": "what an operator has to know",
}
