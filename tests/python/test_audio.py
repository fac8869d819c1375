"""Speech and transcripts with the clients that people have: OpenAI's and OpenRouter's."""

import base64
import io

import openai
import pytest
from conftest import INFERENCE_KEY, start_gateway
from openrouter import OpenRouter

TEXT = "a small boat"
# A sample of two bytes for each character.
SOUND = TEXT.encode("utf-16-le")


@pytest.fixture(scope="module")
def gate(upstream, tmp_path_factory):
    def model(name, gives, protocol, path, pricing):
        return f"""
[[providers]]
slug = "by-{name}"
protocol = "{protocol}"
base_url = "{upstream.url}{path}"
api_key = "upstream-secret"
[[models]]
id = "house/{name}"
context_length = 8192
max_output_tokens = 8192
output_modalities = ["{gives}"]
[[models.endpoints]]
provider = "by-{name}"
model = "m"
pricing = {{ {pricing} }}
"""

    settings = (
        model("speaker", "speech", "openai-chat", "/v1", "input = 1, output = 10")
        + model("letters", "speech", "openai-chat", "/v1", "input = 0, output = 0, character = 15")
        + model("google", "speech", "gemini", "/v1beta", "input = 1, output = 10")
        + model("hours", "transcription", "openai-chat", "/v1", "input = 0, output = 0, audio_hour = 0.36")
        + model("tokens", "transcription", "openai-chat", "/v1", "input = 1, output = 10")
    )
    process = start_gateway(upstream, tmp_path_factory.mktemp("audio"), settings)
    yield process
    process.stop()


@pytest.fixture
def client(gate):
    return openai.OpenAI(base_url=f"{gate.url}/v1", api_key=INFERENCE_KEY, max_retries=0)


@pytest.mark.parametrize("model", ["speaker", "letters", "google"])
def test_openais_client_gets_sound(client, model):
    made = client.audio.speech.create(model=f"house/{model}", input=TEXT, voice="nova", response_format="pcm")
    assert made.read() == SOUND
    with client.audio.speech.with_streaming_response.create(
        model=f"house/{model}", input=TEXT, voice="nova", response_format="pcm"
    ) as streamed:
        assert b"".join(streamed.iter_bytes(5)) == SOUND
        assert streamed.headers["content-type"] == "audio/pcm"


def test_openais_client_gets_a_transcript(client):
    file = ("talk.mp3", io.BytesIO(b"x" * 2500), "audio/mpeg")
    made = client.audio.transcriptions.create(model="house/tokens", file=file, language="en", temperature=0)
    assert made.text == "The recording has 2500 bytes."
    assert (made.usage.type, made.usage.input_tokens, made.usage.output_tokens) == ("tokens", 25, 5)
    assert made.usage.cost == pytest.approx(25e-6 + 5e-5)
    made = client.audio.transcriptions.create(model="house/hours", file=file)
    # 36 cents an hour; a byte is a millisecond to the simulated upstream.
    assert (made.usage.type, made.usage.seconds, made.usage.cost) == ("duration", 2.5, 0.00025)
    long = client.audio.transcriptions.create(
        model="house/hours", file=file, response_format="verbose_json", timestamp_granularities=["segment"]
    )
    assert (long.language, long.duration, long.segments[0].text) == ("english", 2.5, made.text)


def test_what_is_not_offered_is_said(client):
    with pytest.raises(openai.BadRequestError, match="stream must be false"):
        file = ("talk.mp3", io.BytesIO(b"x"), "audio/mpeg")
        client.audio.transcriptions.create(model="house/tokens", file=file, stream=True)
    with pytest.raises(openai.BadRequestError, match="response_format must be pcm or wav"):
        client.audio.speech.create(model="house/google", input=TEXT, voice="nova", response_format="mp3")


def test_openrouters_client_does_both(gate):
    client = OpenRouter(api_key=INFERENCE_KEY, server_url=f"{gate.url}/api/v1")
    assert client.tts.create_speech(model="house/letters", input=TEXT, session_id="s").read() == SOUND
    data = base64.b64encode(b"x" * 100).decode()
    made = client.stt.create_transcription(
        model="house/tokens", input_audio={"data": data, "format": "wav"}, session_id="s", user="u"
    )
    assert made.text == "The recording has 100 bytes."
    assert made.usage.input_tokens == 1
    made = client.stt.create_transcription_multipart(
        model="house/tokens",
        file={"file_name": "talk.wav", "content": b"x" * 300},
        provider='{"only": ["by-tokens"]}',
        session_id="s",
    )
    assert made.text == "The recording has 300 bytes."
