"""The command `serve`. What costs seconds to import is imported once a call is known to be right."""

import errno
import os
import socket
from contextlib import suppress
from typing import Annotated

import typer

from ablation.commands.shared.opened import opened
from ablation.commands.shared.options import exit_statuses, load_chosen
from engines.spec import OURS
from engines.tables import DIALECTS as SPOKEN
from sampling.loading.options import LoadOptions
from sampling.methods.chat_template import TemplateOptions, TemplateVariables
from serve.answers.syntax import SYNTAXES
from utils.device.torchrun import refuse_under_torchrun
from utils.errors import UnknownName, UserError, one_of
from utils.parameter import MOST_TOKENS, Values

KEY = "WORKBENCH_API_KEY"
DIALECTS = tuple(name for name in SPOKEN if name != OURS)

Host = Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 lets other machines in.")]
Port = Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0: any that is free.")]
DefaultMethod = Annotated[
    str, typer.Option(metavar="METHOD", help='What answers where a request names nothing, such as "mtp gamma=2".')
]
Size = Annotated[int, typer.Option(min=1, max=1000, help="Texts answered at a time.")]
MaxWaiting = Annotated[int, typer.Option(min=0, help="Texts that may wait for a place; more are refused.")]
MaxLength = Annotated[int, typer.Option(min=1, help="Most tokens of an answer.")]
MaxBody = Annotated[int, typer.Option(min=1000, help="Most bytes of a request.")]
MaxRows = Annotated[int, typer.Option(min=1, help="Most rows of a round: the drafts of all texts, and one more each.")]
PrefillChunk = Annotated[
    int, typer.Option(min=0, max=MOST_TOKENS, help="Most rows of prompts that a round reads; 0: each prompt alone.")
]
PrefixCache = Annotated[bool, typer.Option(help="Keep rows of prompts and answers for texts that begin alike.")]
PrefixMemory = Annotated[int, typer.Option(min=1, help="Most memory of these rows, in MB (10^6 bytes).")]
KVMemory = Annotated[
    int, typer.Option(min=0, help="Most memory of keys and values of texts, in MB; 0: what they need.")
]
ApiKey = Annotated[
    str | None, typer.Option(metavar="KEY", help=f"What clients must know; or in the environment, as {KEY}.")
]
Dialect = Annotated[str, typer.Option(help=f"Whose completions to answer as: {one_of(DIALECTS)}.")]

ToolParser = Annotated[
    str,
    typer.Option(metavar="NAME", help="How the model writes calls of tools (docs/server.md); auto: as its template."),
]


@opened(models=LoadOptions, told=TemplateOptions)
def serve(
    *,
    host: Host = "127.0.0.1",
    port: Port = 8000,
    method: DefaultMethod = "target",
    batch: Size = 8,
    max_waiting: MaxWaiting = 64,
    max_length: MaxLength = 1024,
    max_body: MaxBody = 1_000_000,
    max_rows: MaxRows = 4096,
    prefill_chunk: PrefillChunk = 48,
    prefix_cache: PrefixCache = True,
    prefix_memory: PrefixMemory = 1000,
    kv_memory: KVMemory = 0,
    api_key: ApiKey = None,
    dialect: Dialect = "vllm",
    tool_parser: ToolParser = "auto",
    told: Values,
    models: Values,
) -> None:
    """Serve the models to OpenAI's clients, any method by request; open http://127.0.0.1:8000 to see it live.

    Each request may name its method: "speculative": {"method": "mtp", "gamma": 2}. Ends at Ctrl-C, with status 0.
    Exit status 2: the call is wrong, or the address is taken.
    """
    with exit_statuses():
        refuse_under_torchrun("serve", "one process, or the command run")
        from serve.requests.speculative import read_default

        default = read_default(method)
        variables = TemplateVariables.read(told)
        if dialect not in DIALECTS:
            raise UnknownName("dialect", dialect, DIALECTS)
        if tool_parser not in (parsers := ("auto", *SYNTAXES)):
            raise UnknownName("tool parser", tool_parser, parsers)
        key = api_key or os.environ.get(KEY) or None
        if key and not (key.isascii() and key.isprintable() and " " not in key):
            raise UserError("--api-key: expected letters, digits and signs of ASCII, which a header can hold")
        with listening(host, port) as listener:
            pair = load_chosen(models)
            pair.template_values(variables)

            from sampling.pair.pair_engine import PairEngine
            from serve.app import Server
            from serve.limits import ServerLimits
            from serve.web import web_server

            kept = prefix_memory if prefix_cache else 0
            memory = prefill_chunk, kept, kv_memory
            sizes = batch, max_waiting, max_length, max_body
            limits = ServerLimits(*sizes, key, dialect, max_rows, *memory, tool_parser)
            server = Server(PairEngine(pair), default, limits, variables)
            url = url_of(listener)
            typer.echo(f"serving {pair.target_info.name} at {url}/v1; {url} shows it live; Ctrl-C ends it", err=True)
            with suppress(KeyboardInterrupt):  # which uvicorn raises once more when it has ended
                web_server(server).run(sockets=[listener])


def listening(host: str, port: int) -> socket.socket:
    """The address, taken before models are loaded. Raises `UserError` where it cannot be had."""
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, _, _, address = addresses[0]
        listener = socket.socket(family, kind)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen(128)
        except BaseException:
            listener.close()
            raise
        return listener
    except OSError as error:
        hint = "; choose another --port" if error.errno == errno.EADDRINUSE else ""
        raise UserError(f"--host {host} --port {port}: {error.strerror or error}{hint}") from None


def url_of(listener: socket.socket) -> str:
    """Where a socket listens, as an address to open."""
    host, port = listener.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"
