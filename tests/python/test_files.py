"""Files with the official clients of Anthropic, OpenAI and OpenRouter."""

import anthropic
import openai
import pytest
from openrouter import OpenRouter
from openrouter.errors import NotFoundResponseError

from conftest import INFERENCE_KEY

TIDES = ("tides.csv", b"port,high\nBrest,06:00\n", "text/csv")


def test_anthropics_client_keeps_lists_reads_and_deletes(client):
    made = client.beta.files.upload(file=TIDES)
    assert (made.type, made.filename, made.mime_type, made.size_bytes) == ("file", "tides.csv", "text/csv", 22)
    assert client.beta.files.retrieve_metadata(made.id) == made
    assert client.beta.files.download(made.id).read() == TIDES[1]
    others = [client.beta.files.upload(file=(f"{place}.txt", b"x", "text/plain")).id for place in range(3)]
    # Pages of two, to the last one.
    listed = [file.id for file in client.beta.files.list(limit=2)]
    assert set(listed) >= {made.id, *others} and len(listed) == len(set(listed))
    for file_id in [made.id, *others]:
        assert client.beta.files.delete(file_id).id == file_id
    with pytest.raises(anthropic.NotFoundError):
        client.beta.files.retrieve_metadata(made.id)


def test_openais_client_does_the_same(gateway):
    client = openai.OpenAI(base_url=f"{gateway.url}/v1", api_key=INFERENCE_KEY, max_retries=0)
    named = client.with_options(default_query={"provider": "openai"}, default_headers={"user-agent": "another"})
    made = client.files.create(file=TIDES, purpose="assistants")
    assert named.files.retrieve(made.id) == made
    assert (made.object, made.filename, made.bytes, made.purpose) == ("file", "tides.csv", 22, "assistants")
    assert client.files.retrieve(made.id) == made
    assert client.files.content(made.id).read() == TIDES[1]
    other = client.files.create(file=("x.txt", b"x"), purpose="user_data")
    assert {made.id, other.id} <= {file.id for file in client.files.list(limit=1)}
    for file_id in (made.id, other.id):
        assert client.files.delete(file_id).deleted is True
    with pytest.raises(openai.NotFoundError):
        client.files.retrieve(made.id)
    with pytest.raises(openai.BadRequestError, match="Invalid request parameters"):
        client.files.create(file=TIDES, purpose="fun")


def test_openrouters_client_does_the_same(branded):
    with OpenRouter(api_key=INFERENCE_KEY, server_url=f"{branded.url}/api/v1", timeout_ms=30_000) as client:
        name, content, kind = TIDES
        files = [client.files.upload(file={"file_name": f"{at}{name}", "content": content, "content_type": kind}) for at in "abc"]
        made = files[0]
        assert (made.shape, made.filename, made.mime_type, made.size_bytes) == ("openrouter", "atides.csv", "text/csv", 22)
        assert client.files.retrieve(file_id=made.id) == made
        assert client.files.download(file_id=made.id).read() == content
        page, listed = client.files.list(limit=2), []
        while page is not None:
            listed += [file.id for file in page.result.data]
            page = page.next()
        assert [file.id for file in files] == listed
        for file in files:
            assert client.files.delete(file_id=file.id).id == file.id
        with pytest.raises(NotFoundResponseError):
            client.files.retrieve(file_id=made.id)
