"""DescribeUserScramCredentials, AlterUserScramCredentials."""

from __future__ import annotations

from millrace_protocol.messages.scram_credentials import (
    AlteredUser,
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    CredentialInfo,
    DescribedUser,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from millrace_server.dialects.native.handlers.outcome import outcome
from millrace_server.metadata.scram_credentials import Alteration, Deletion, Upsertion
from millrace_server.services.request_context import RequestContext
from millrace_server.services.services import Services


def describe(
    services: Services, context: RequestContext, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    """Answers from the image of this broker."""
    return DescribeUserScramCredentialsResponse(
        tuple(
            DescribedUser(
                user.name,
                *outcome(user.error),
                tuple(CredentialInfo(*each) for each in sorted(user.credentials.items())),
            )
            for user in services.users.describe(context, request.users)
        )
    )


async def alter(
    services: Services, context: RequestContext, request: AlterUserScramCredentialsRequest
) -> AlterUserScramCredentialsResponse:
    """Changes each user for itself."""
    alterations: list[Alteration] = [
        *(Deletion(each.user, each.mechanism) for each in request.deletions),
        *(
            Upsertion(each.user, each.mechanism, each.iterations, each.salt, each.salted_password)
            for each in request.upsertions
        ),
    ]
    refused = await services.run(services.users.alter(context, alterations))
    return AlterUserScramCredentialsResponse(
        tuple(AlteredUser(user, *outcome(error)) for user, error in refused.items())
    )
