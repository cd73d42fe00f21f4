"""The services of one broker together: what a dialect gets of it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from millrace_server.controller.controller_calls import ControllerCalls
from millrace_server.controller.controller_requests import ControllerRequests
from millrace_server.environment.seams import Environment
from millrace_server.loop.fair_scheduler import FairScheduler
from millrace_server.services.acls import AclService
from millrace_server.services.administration import AdministrationService
from millrace_server.services.authentication import AuthenticationService
from millrace_server.services.authorizer import Authorizer
from millrace_server.services.batch_lookups import BatchLookups
from millrace_server.services.client_quotas import QuotaService
from millrace_server.services.client_throttle import ClientThrottle
from millrace_server.services.cluster import ClusterService
from millrace_server.services.delete_records import DeleteRecordsService
from millrace_server.services.fetch import FetchService
from millrace_server.services.groups import GroupCoordinatorService
from millrace_server.services.list_offsets import OffsetService
from millrace_server.services.log_dirs import LogDirService
from millrace_server.services.produce import ProduceService
from millrace_server.services.producer_ids import ProducerIds
from millrace_server.services.quorum import QuorumService
from millrace_server.services.records import RecordService
from millrace_server.services.replica_fetch import ReplicaFetchService
from millrace_server.services.replica_read import ReplicaReadService
from millrace_server.services.split_ranges import SplitRangeService
from millrace_server.services.statistics import StatisticsService
from millrace_server.services.topics import Topics
from millrace_server.services.users import UserService
from millrace_server.services.voters import VoterService

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Services:
    """Handlers await the services, and the scheduler between two chunks of their own work."""

    produce: ProduceService
    fetch: FetchService
    offsets: OffsetService
    topics: Topics
    groups: GroupCoordinatorService
    producer_ids: ProducerIds
    cluster: ClusterService
    records: RecordService
    ranges: SplitRangeService
    delete_records: DeleteRecordsService
    log_dirs: LogDirService
    administration: AdministrationService
    voters: VoterService
    authentication: AuthenticationService
    authorizer: Authorizer
    users: UserService
    acls: AclService
    quotas: QuotaService
    throttle: ClientThrottle
    controller: ControllerCalls
    replica_fetch: ReplicaFetchService
    replica_read: ReplicaReadService
    requests: ControllerRequests
    quorum: QuorumService
    lookups: BatchLookups
    scheduler: FairScheduler
    statistics: StatisticsService
    env: Environment

    def run(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """To be awaited: runs work to its end, also when its client hangs up meanwhile."""
        return self.env.spawn.task(work, name="request")
