"""Embeddings with OpenAI's client, from upstreams of three protocols."""

import openai
import pytest
from conftest import INFERENCE_KEY, start_gateway

PROTOCOLS = {"openai-chat": "/v1", "cohere": "", "gemini": "/v1beta"}


@pytest.fixture(scope="module")
def embedding(upstream, tmp_path_factory):
    settings = "".join(
        f"""
[[providers]]
slug = "by-{protocol}"
protocol = "{protocol}"
base_url = "{upstream.url}{path}"
api_key = "upstream-secret"
[[models]]
id = "vectors/{protocol}"
context_length = 8192
max_output_tokens = 8192
output_modalities = ["embeddings"]
[[models.endpoints]]
provider = "by-{protocol}"
model = "m"
pricing = {{ input = 1, output = 0 }}
"""
        for protocol, path in PROTOCOLS.items()
    )
    process = start_gateway(upstream, tmp_path_factory.mktemp("embedding"), settings)
    yield process
    process.stop()


@pytest.fixture
def client(embedding):
    return openai.OpenAI(base_url=f"{embedding.url}/v1", api_key=INFERENCE_KEY, max_retries=0)


# The client asks for Base64 unless it is told otherwise, and makes numbers of it.
@pytest.mark.parametrize("options", [{}, {"encoding_format": "float"}])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_openais_client_gets_vectors(client, protocol, options):
    made = client.embeddings.create(model=f"vectors/{protocol}", input=["a small boat", "fog"], dimensions=3, **options)
    # The simulated upstream says how long each text is and where it stood.
    assert [entry.embedding for entry in made.data] == [[12.0, 0.0, 0.5], [3.0, 1.0, 0.5]]
    assert [entry.index for entry in made.data] == [0, 1]
    assert made.model == f"vectors/{protocol}" and made.object == "list"
    assert (made.usage.prompt_tokens, made.usage.cost) == (4, 4e-06)


def test_mistakes_are_told_as_openais_client_knows_them(client):
    with pytest.raises(openai.BadRequestError, match=r"input\[1\] must be at least 1 characters"):
        client.embeddings.create(model="vectors/cohere", input=["a", ""])
    with pytest.raises(openai.BadRequestError, match="takes texts only"):
        client.embeddings.create(model="vectors/cohere", input=[1, 2])
    with pytest.raises(openai.BadRequestError, match="is not available on this endpoint"):
        client.chat.completions.create(model="vectors/cohere", messages=[{"role": "user", "content": "Hello"}])
