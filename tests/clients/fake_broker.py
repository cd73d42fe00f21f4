"""A broker for tests of the clients: real frames over real sockets, memory instead of a disk.

Behaves like a broker until told otherwise. `script(api, behaviour)` puts a behaviour in front of
an api: it gets the request and the default handler, and answers, refuses, waits, or returns None,
which sends nothing. `requests` is everything that came in.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Self

from millrace_protocol.api import APIS, ApiKey, Listener, apis_of
from millrace_protocol.codec import decode, encode
from millrace_protocol.errors import ErrorCode
from millrace_protocol.framing import (
    FRAME_BYTES_MAX,
    FrameSplitter,
    error_frame,
    read_request_header,
    response_frame,
)
from millrace_protocol.messages.admin import (
    CreatedTopic,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    TopicResult,
)
from millrace_protocol.messages.error_response import ErrorResponse
from millrace_protocol.messages.fetch import FetchPartitionResult, FetchRequest, FetchResponse
from millrace_protocol.messages.hello import ApiRange, HelloRequest, HelloResponse
from millrace_protocol.messages.list_offsets import (
    EARLIEST,
    LATEST,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsResult,
)
from millrace_protocol.messages.metadata import (
    BrokerMetadata,
    MetadataRequest,
    MetadataResponse,
    PartitionMetadata,
    TopicMetadata,
)
from millrace_protocol.messages.produce import (
    ProducePartitionResult,
    ProduceRequest,
    ProduceResponse,
)
from millrace_protocol.messages.producer_id import InitProducerIdRequest, InitProducerIdResponse
from millrace_protocol.messages.split_ranges import (
    PartitionPieces,
    RangePiece,
    SplitRangesRequest,
    SplitRangesResponse,
)
from millrace_protocol.messages.statistics import (
    DescribeStatisticsRequest,
    DescribeStatisticsResponse,
)
from millrace_protocol.records import Record, assign, check_batch, decode_records, encode_batch
from millrace_protocol.schema import Message
from tests.hang_timeout import HANG_TIMEOUT_S

Handler = Callable[[Any], Message | Awaitable[Message | None] | None]
Behaviour = Callable[[Any, Handler], Message | Awaitable[Message | None] | None]


class Refuse(Exception):
    """Raised by a behaviour: the whole request is refused with this code."""

    def __init__(self, code: ErrorCode) -> None:
        super().__init__(code)
        self.code = code


class HangUp(Exception):
    """Raised by a behaviour: the connection is closed without an answer."""


@dataclass
class Log:
    """One partition: whole batches, and what is remembered of producers."""

    batches: list[bytes] = field(default_factory=list)
    start: int = 0
    end: int = 0
    producers: dict[int, tuple[int, list[tuple[int, int, int]]]] = field(default_factory=dict)

    def append(self, data: bytes) -> int:
        """Base offset of the batch; appends nothing for a repeated one."""
        header = check_batch(data)
        if header.producer_id >= 0:
            epoch, seen = self.producers.get(header.producer_id, (header.producer_epoch, []))
            if header.producer_epoch < epoch:
                raise Refuse(ErrorCode.INVALID_PRODUCER_EPOCH)
            if header.producer_epoch > epoch:
                seen = []
            for base, count, offset in seen:
                if base == header.base_sequence and count == header.record_count:
                    return offset
            expected = seen[-1][0] + seen[-1][1] if seen else 0
            if header.base_sequence != expected:
                known = header.producer_id in self.producers
                raise Refuse(
                    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
                    if known
                    else ErrorCode.UNKNOWN_PRODUCER_ID
                )
            seen = [*seen, (header.base_sequence, header.record_count, self.end)][-5:]
            self.producers[header.producer_id] = (header.producer_epoch, seen)
        batch = bytearray(data)
        assign(batch, base_offset=self.end, leader_epoch=0)
        base_offset = self.end
        self.batches.append(bytes(batch))
        self.end += header.last_offset_delta + 1
        return base_offset

    def read(self, offset: int, max_bytes: int) -> bytes:
        """Whole batches from the one that holds `offset` on; at least one."""
        found = b""
        for batch in self.batches:
            if check_batch(batch, check_crc=False).next_offset <= offset:
                continue
            if found and len(found) + len(batch) > max_bytes:
                break
            found += batch
        return found

    def records(self) -> list[Record]:
        """Every record, decoded."""
        return [record for batch in self.batches for record in decode_records(batch)]


class FakeBroker:
    """`async with FakeBroker({"t": 3}) as broker: ... broker.address`."""

    def __init__(self, topics: dict[str, int], *, node_id: int = 0) -> None:
        self.node_id = node_id
        self.topics = dict(topics)
        self.logs: defaultdict[tuple[str, int], Log] = defaultdict(Log)
        self.requests: list[tuple[ApiKey, Message]] = []
        self.host, self.port = "127.0.0.1", 0
        self.peers: dict[int, tuple[str, int]] = {}
        self.leader_of: Callable[[str, int], int] = lambda topic, partition: self.node_id
        self.configs: dict[str, dict[str, str | None]] = defaultdict(dict)
        self.inflight_fetches = 0
        self._behaviours: dict[ApiKey, Behaviour] = {}
        self._next_producer_id = 1000
        self._data = asyncio.Event()
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._serving: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Listens; on the same port as before when it did already."""
        self._server = await asyncio.start_server(self._serve, self.host, self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Dies: the port is closed and every connection is cut."""
        assert self._server is not None
        self._server.close()
        self.cut()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, *self._serving, return_exceptions=True)
        await self._server.wait_closed()

    def cut(self) -> None:
        """Cuts every connection."""
        for writer in self._writers:
            writer.transport.abort()

    async def until_disconnected(self) -> None:
        """Returns when the clients have closed every connection."""
        async with asyncio.timeout(HANG_TIMEOUT_S):
            await asyncio.gather(*self._serving)

    def script(self, api: ApiKey, behaviour: Behaviour | None) -> None:
        """Puts a behaviour in front of an api, or takes it away."""
        if behaviour is None:
            self._behaviours.pop(api, None)
        else:
            self._behaviours[api] = behaviour

    def count(self, api: ApiKey) -> int:
        """How many requests of an api came in."""
        return Counter(key for key, _ in self.requests)[api]

    def fill(self, topic: str, partition: int, values: list[bytes], **columns: Any) -> None:
        """Appends records, as some producer would."""
        columns.setdefault("timestamps_ms", 1_700_000_000_000)
        self.logs[topic, partition].append(bytes(encode_batch(values, **columns)))
        self._data.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        serving = asyncio.current_task()
        assert serving is not None
        self._serving.add(serving)
        serving.add_done_callback(self._serving.discard)
        splitter = FrameSplitter()
        task: asyncio.Task[None] | None = None
        try:
            while data := await reader.read(1 << 16):
                for frame in splitter.feed(data):
                    task = asyncio.create_task(self._answer(frame, writer, task))
                    self._tasks.add(task)
                    task.add_done_callback(self._tasks.discard)
        except ConnectionError:
            pass
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _answer(
        self, frame: bytes, writer: asyncio.StreamWriter, before: asyncio.Task[None] | None
    ) -> None:
        """Responses leave in the order of the requests (W-2.6): `before` is the one before."""
        header = read_request_header(frame)
        api = APIS[ApiKey(header.api)]
        request = decode(api.request, frame[header.body_position :], header.version)
        self.requests.append((api.key, request))
        default: Handler = getattr(self, f"_on_{api.key.name.lower()}")
        behaviour = self._behaviours.get(api.key)
        ids = {"api": header.api, "version": 0, "correlation_id": header.correlation_id}
        try:
            answer = default(request) if behaviour is None else behaviour(request, default)
            if answer is not None and not isinstance(answer, Message):
                answer = await answer
        except Refuse as refuse:
            refusal = ErrorResponse("refused by the test")
            response = error_frame(**ids, error_code=refuse.code, response=refusal)
        except HangUp:
            writer.transport.abort()
            return
        else:
            if answer is None or (isinstance(request, ProduceRequest) and request.acks == 0):
                response = b""
            else:
                response = response_frame(**ids, body=encode(answer, header.version))
        if before is not None:
            await asyncio.wait([before])
        writer.write(response)

    # Default handlers

    def _on_hello(self, request: HelloRequest) -> HelloResponse:
        served = apis_of(Listener.CLIENT).items()
        apis = tuple(ApiRange(key, api.min_version, api.max_version) for key, api in served)
        return HelloResponse("fake", "0", "cluster", self.node_id, FRAME_BYTES_MAX, 64, apis)

    def _on_metadata(self, request: MetadataRequest) -> MetadataResponse:
        names = tuple(self.topics) if request.topics is None else request.topics
        brokers = {self.node_id: (self.host, self.port), **self.peers}
        return MetadataResponse(
            "cluster",
            self.node_id,
            tuple(BrokerMetadata(node, host, port, None) for node, (host, port) in brokers.items()),
            tuple(self._topic_metadata(name) for name in names),
        )

    def _topic_metadata(self, name: str) -> TopicMetadata:
        zero = uuid.UUID(int=0)
        if name not in self.topics:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return TopicMetadata(code, f"no topic {name}", name, zero, False, ())
        partitions = tuple(
            PartitionMetadata(0, index, self.leader_of(name, index), 0, (), ())
            for index in range(self.topics[name])
        )
        return TopicMetadata(0, None, name, zero, False, partitions)

    def _on_init_producer_id(self, request: InitProducerIdRequest) -> InitProducerIdResponse:
        if request.producer_id >= 0:
            return InitProducerIdResponse(request.producer_id, request.producer_epoch + 1)
        self._next_producer_id += 1
        return InitProducerIdResponse(self._next_producer_id, 0)

    def _on_produce(self, request: ProduceRequest) -> ProduceResponse:
        results = []
        for wanted in request.partitions:
            code, offset = ErrorCode.NONE, -1
            if wanted.partition >= self.topics.get(wanted.topic, 0):
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif self.leader_of(wanted.topic, wanted.partition) != self.node_id:
                code = ErrorCode.NOT_LEADER_OR_FOLLOWER
            else:
                try:
                    offset = self.logs[wanted.topic, wanted.partition].append(bytes(wanted.records))
                except Refuse as refuse:
                    code = refuse.code
            results.append(
                ProducePartitionResult(wanted.topic, wanted.partition, code, None, offset, -1, 0)
            )
        self._data.set()
        return ProduceResponse(tuple(results))

    async def _on_fetch(self, request: FetchRequest) -> FetchResponse:
        """A long poll: answers when there is data, an error, or `max_wait_ms` is over."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + request.max_wait_ms / 1000
        self.inflight_fetches += 1
        try:
            while True:
                self._data.clear()
                answer = self._read(request)
                if any(p.error_code or len(p.records) for p in answer.partitions):
                    return answer
                try:
                    async with asyncio.timeout_at(deadline):
                        await self._data.wait()
                        # Every waiter must see the event before one clears it.
                        await asyncio.sleep(0)
                except TimeoutError:
                    return answer
        finally:
            self.inflight_fetches -= 1

    def _read(self, request: FetchRequest) -> FetchResponse:
        results = []
        left = request.max_bytes
        for wanted in request.partitions:
            log = self.logs[wanted.topic, wanted.partition]
            code, message, data = ErrorCode.NONE, None, b""
            if wanted.partition >= self.topics.get(wanted.topic, 0):
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif self.leader_of(wanted.topic, wanted.partition) != self.node_id:
                code = ErrorCode.NOT_LEADER_OR_FOLLOWER
            elif not log.start <= wanted.fetch_offset <= log.end:
                code = ErrorCode.OFFSET_OUT_OF_RANGE
                message = f"offset {wanted.fetch_offset} is not in [{log.start}, {log.end}]"
            elif left > 0:
                data = log.read(wanted.fetch_offset, min(left, wanted.max_bytes))
                left -= len(data)
            results.append(
                FetchPartitionResult(
                    wanted.topic, wanted.partition, code, message, log.end, log.start, -1, data
                )
            )
        return FetchResponse(tuple(results))

    def _on_list_offsets(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        results = []
        for wanted in request.partitions:
            log = self.logs[wanted.topic, wanted.partition]
            code, timestamp_ms, offset = ErrorCode.NONE, -1, -1
            if wanted.partition >= self.topics.get(wanted.topic, 0):
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif wanted.timestamp_ms == EARLIEST:
                offset = log.start
            elif wanted.timestamp_ms == LATEST:
                offset = log.end
            else:
                later = [r for r in log.records() if r[1] >= wanted.timestamp_ms]
                if later:
                    offset, timestamp_ms = later[0][0], later[0][1]
            results.append(
                ListOffsetsResult(
                    wanted.topic, wanted.partition, code, None, timestamp_ms, offset, 0
                )
            )
        return ListOffsetsResponse(tuple(results))

    def _on_split_ranges(self, request: SplitRangesRequest) -> SplitRangesResponse:
        results = []
        for wanted in request.partitions:
            code, pieces, size_bytes = ErrorCode.NONE, [], 0
            if self.leader_of(wanted.topic, wanted.partition) != self.node_id:
                code = ErrorCode.NOT_LEADER_OR_FOLLOWER
            else:
                for batch in self.logs[wanted.topic, wanted.partition].batches:
                    header = check_batch(batch, check_crc=False)
                    if not wanted.start_offset < header.next_offset <= wanted.end_offset:
                        continue
                    size_bytes += len(batch)
                    if size_bytes >= wanted.piece_bytes or header.next_offset == wanted.end_offset:
                        pieces.append(RangePiece(header.next_offset, size_bytes))
                        size_bytes = 0
            results.append(
                PartitionPieces(wanted.topic, wanted.partition, code, None, 0, tuple(pieces))
            )
        return SplitRangesResponse(tuple(results))

    def _on_describe_statistics(
        self, request: DescribeStatisticsRequest
    ) -> DescribeStatisticsResponse:
        return DescribeStatisticsResponse(self.node_id, "0.0", 0, ())

    def _on_create_topics(self, request: CreateTopicsRequest) -> CreateTopicsResponse:
        created = []
        for topic in request.topics:
            code = ErrorCode.NONE
            if topic.name in self.topics:
                code = ErrorCode.TOPIC_ALREADY_EXISTS
            elif not request.validate_only:
                self.topics[topic.name] = max(1, topic.partitions)
            created.append(
                CreatedTopic(topic.name, code, None, uuid.UUID(int=1), max(1, topic.partitions), 1)
            )
        return CreateTopicsResponse(tuple(created))

    def _on_delete_topics(self, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
        results = []
        for name in request.topics:
            there = self.topics.pop(name, None)
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if there is None else ErrorCode.NONE
            results.append(TopicResult(name, code, None))
        return DeleteTopicsResponse(tuple(results))

    def _on_create_partitions(self, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
        for topic in request.topics:
            self.topics[topic.name] = topic.partitions
        return CreatePartitionsResponse(
            tuple(TopicResult(topic.name, ErrorCode.NONE, None) for topic in request.topics)
        )
