"""DescribeUserScramCredentials and AlterUserScramCredentials."""

from __future__ import annotations

from millrace_protocol.errors import ErrorCode
from millrace_protocol.kafka import scram_credentials as messages
from millrace_server.api_error import ApiError
from millrace_server.dialects.kafka.errors import kafka_code
from millrace_server.metadata.scram_credentials import Alteration, Deletion, Upsertion
from millrace_server.services.request_context import RequestContext
from millrace_server.services.services import Services


def describe(
    services: Services,
    context: RequestContext,
    request: messages.DescribeUserScramCredentialsRequest,
    version: int,
) -> messages.DescribeUserScramCredentialsResponse:
    """Answers from the image of this broker."""
    names = [each.name for each in request.users] if request.users else None
    try:
        users = services.users.describe(context, names)
    except ApiError as error:
        return messages.DescribeUserScramCredentialsResponse(0, *_outcome(error))
    return messages.DescribeUserScramCredentialsResponse(
        results=tuple(
            messages.DescribedUser(
                user.name,
                *_outcome(user.error),
                tuple(messages.CredentialInfo(*each) for each in sorted(user.credentials.items())),
            )
            for user in users
        )
    )


async def alter(
    services: Services,
    context: RequestContext,
    request: messages.AlterUserScramCredentialsRequest,
    version: int,
) -> messages.AlterUserScramCredentialsResponse:
    """Changes each user for itself."""
    alterations: list[Alteration] = [
        *(Deletion(each.name, each.mechanism) for each in request.deletions),
        *(
            Upsertion(each.name, each.mechanism, each.iterations, each.salt, each.salted_password)
            for each in request.upsertions
        ),
    ]
    try:
        refused = await services.run(services.users.alter(context, alterations))
    except ApiError as error:
        refused = dict.fromkeys((each.user for each in alterations), error)
    return messages.AlterUserScramCredentialsResponse(
        results=tuple(
            messages.AlteredUser(user, *_outcome(error)) for user, error in refused.items()
        )
    )


def _outcome(error: ApiError | None) -> tuple[int, str | None]:
    return (ErrorCode.NONE, None) if error is None else (kafka_code(error.code), error.message)
