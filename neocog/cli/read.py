"""``neocog read``: pictures in, digits out."""

from typing import Annotated

import typer

from neocog.cli import options

Inputs = Annotated[
    list[str],
    typer.Argument(
        metavar="INPUT",
        help="Pictures, folders, zip and tar archives, patterns, @FILE with a name a line, "
        "- for names on stdin.",
    ),
]
Format = Annotated[
    str | None,
    typer.Option(
        "--format",
        metavar="text|jsonl|csv|table",
        help="Form of the result [default: by the name of FILE, else text].",
    ),
]
Output = Annotated[
    str | None, typer.Option("--output", "-o", metavar="FILE", help="Write there, not stdout (-).")
]
Overlay = Annotated[
    str | None,
    typer.Option(
        "--save-overlay",
        metavar="DIR",
        help="Save NAME.read.png for each picture, in DIR as in its folder: the reading drawn "
        "over it.",
    ),
]
Debug = Annotated[
    str | None,
    typer.Option(
        "--debug", metavar="DIR", help="Save what the finder found, and the digits cut out."
    ),
]
ReportFile = Annotated[
    str | None,
    typer.Option(
        "--report", metavar="FILE.html", help="Write a page with small pictures, doubts first."
    ),
]
Rotate = Annotated[
    str,
    typer.Option(
        "--rotate",
        metavar="auto|0|90|180|270",
        help="Turn pages clockwise; auto turns those of 12 digits and more that lie on their side.",
    ),
]
Timings = Annotated[
    bool, typer.Option("--timings", help="Add the time of each stage to JSON records.")
]
Isolated = Annotated[
    bool, typer.Option("--isolated", help="Every picture is one digit: no search.")
]
Null = Annotated[
    bool, typer.Option("--null", "-0", help="Names in lists and on stdin end with a zero byte.")
]
Resume = Annotated[bool, typer.Option("--resume", help="Go on where FILE (JSON lines) breaks off.")]
ShardOf = Annotated[
    str | None,
    typer.Option("--shard", metavar="I/N", help="Read the I-th of N shares, by the names."),
]
Ordered = Annotated[
    bool, typer.Option("--ordered", help="Keep the order of the inputs, not that of completion.")
]
Workers = Annotated[
    int | None,
    typer.Option(
        "--workers",
        metavar="N",
        help="Processes that decode and find, 0: this one [default: one a core, 0 for a few "
        "pictures].",
    ),
]
Ray = Annotated[
    str | None,
    typer.Option("--ray", metavar="ADDRESS", help="Read on the Ray cluster at ADDRESS or 'auto'."),
]


def read(
    inputs: Inputs,
    model: options.Model = options.DEFAULT_MODEL,
    device: options.Device = "auto",
    precision: options.Precision = None,
    plan: options.Plan = "default",
    form: Format = None,
    output: Output = None,
    overlay: Overlay = None,
    debug: Debug = None,
    report: ReportFile = None,
    min_p: options.MinP = None,
    max_error: options.MaxError = None,
    pattern: options.Pattern = None,
    rotate: Rotate = "auto",
    isolated: Isolated = False,
    null: Null = False,
    resume: Resume = False,
    shard: ShardOf = None,
    ordered: Ordered = False,
    workers: Workers = None,
    ray: Ray = None,
    timings: Timings = False,
    batch: options.Batch = None,
    finder: options.Finder = None,
) -> None:
    """Read the handwritten digits in pictures.

    A picture that cannot be read is told on stderr, the others are still read, and the exit
    code is 1.
    """
    from neocog.batch.cluster import Cluster
    from neocog.batch.formats import Format, kind_of
    from neocog.batch.inputs import is_one_file
    from neocog.batch.policy import parse_share
    from neocog.batch.reader import Reader
    from neocog.batch.request import Request
    from neocog.batch.run import read_all
    from neocog.batch.shards import Shard
    from neocog.cli.progress import ReadingBar
    from neocog.errors import UsageError
    from neocog.messages import tell

    if isolated and pattern is not None:
        raise UsageError("--pattern is for lines, with --isolated a picture is one digit; give one")
    if isolated and rotate != "auto":
        raise UsageError("--rotate is for pages, with --isolated nothing is turned; give one")
    if output == "-":
        output = None
    request = Request(
        tuple(inputs),
        Format(form or kind_of(output), names=not is_one_file(inputs), timings=timings),
        output,
        null=null,
        isolated=isolated,
        resume=resume,
        shard=None if shard is None else Shard.parse(shard),
        ordered=ordered,
        workers=workers,
        cluster=None if ray is None else Cluster(ray, device, precision, plan, workers),
        batch=batch,
        overlay=overlay,
        debug=debug,
        report=report,
    )
    reader = Reader(
        model,
        device="cpu" if ray else device,
        precision=None if ray else precision,
        plan="default" if ray else plan,
        min_p=min_p,
        max_error=None if max_error is None else parse_share(max_error),
        batch=batch,
        finder=finder,
        pattern=pattern,
        rotate=_degrees(rotate),
    )
    with ReadingBar(request.count, to_file=output is not None) as bar:
        tally = read_all(request, reader, watch=bar.add)
    if resume and tally.inputs == tally.earlier > 0:
        tell(f"all {tally.earlier} were done before")
    if tally.failed and tally.pages > 1:
        tell(f"{tally.failed} of {tally.pages} could not be read")
    if tally.failed or tally.unsaved:
        raise typer.Exit(1)


def _degrees(words: str) -> int | None:
    from neocog.errors import UsageError

    if words == "auto":
        return None
    if words not in ("0", "90", "180", "270"):
        raise UsageError(f"--rotate {words}: wanted auto, 0, 90, 180 or 270")
    return int(words)
