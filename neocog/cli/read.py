"""``neocog read``: pictures in, digits out."""

import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from neocog.cli import options
from neocog.cli.options import flag, option
from neocog.errors import UsageError
from neocog.network.registry import DEFAULT
from neocog.text import tell


def read(
    inputs: Annotated[list[str], typer.Argument(metavar="INPUT",
        help="Pictures, URLs, folders, zip and tar archives, globs, @FILE (one name per line), - "
        "(stdin: a picture or a list of names).")],
    model: options.PageModel = None,
    device: options.Device = "auto",
    precision: options.Precision = None,
    plan: options.Plan = "default",
    format: Annotated[str | None, option("text|jsonl|json|csv|tsv|hocr|alto|page|coco|labelstudio|pdf",
        "Output format [default: from FILE's suffix, else text].")] = None,
    json: Annotated[bool, flag("The same as --format json.")] = False,
    output: Annotated[str | None, option("FILE",
        "Write to FILE instead of stdout.", "--output", "-o")] = None,
    overlay: Annotated[str | None, option("DIR", "Save each picture with boxes and digits drawn over it, as "
        "DIR/.../NAME.read.jpg (photographs) or .png.", "--save-overlay")] = None,
    report: Annotated[str | None, option("FILE.html",
        "Write an HTML page, the most uncertain pictures first.")] = None,
    min_p: options.MinP = None,
    max_error: options.MaxError = None,
    pattern: options.Pattern = None,
    valid: options.Valid = None,
    form: Annotated[str | None, option("FORM.json",
        "Read the fields of a form (docs/forms.md): a row for each sheet; csv, tsv, jsonl or json.")] = None,
    rotate: Annotated[str, option("auto|0|90|180|270",
        "Turn pages clockwise; auto turns pages that are clearly not upright.")] = "auto",
    long_side: Annotated[str | None, option("N|full",
        "Reduce larger pictures to a long side of N pixels first; full: not at all [default: 8192].")] = None,
    mirror: Annotated[bool, flag("Mirror pages left to right first.")] = False,
    digits_only: Annotated[bool, flag("Leave signs and spaces out of the text.")] = False,
    isolated: Annotated[bool, flag(f"Each picture is one digit [default model: {DEFAULT}].")] = False,
    null: Annotated[bool, flag(
        "Names in lists and on stdin are separated by NUL bytes.", "--null", "-0")] = False,
    resume: Annotated[bool, flag("Continue an interrupted run that wrote JSON lines to FILE.")] = False,
    shard: Annotated[str | None, option("I/N",
        "Read part I of N. A hash of the name assigns each picture to a part.")] = None,
    ordered: Annotated[bool, flag("Write records in the order of the inputs.")] = False,
    workers: Annotated[int | None, option("N", "Worker processes; 0 reads in this process [default: one per "
        "core, with a GPU two per core; 0 for a few pictures].")] = None,
    ray: Annotated[str | None, option("ADDRESS", "Read on the Ray cluster at ADDRESS or 'auto'.")] = None,
    timings: Annotated[bool, flag("Add the time of each stage to JSON records.")] = False,
    batch: options.Batch = None,
    finder: options.Finder = None,
    force: options.Force = False,
    verbose: Annotated[bool, flag("Name each file that is skipped, and why.", "--verbose", "-v")] = False,
    quiet: Annotated[bool, flag("Print only results and errors.", "--quiet", "-q")] = False,
) -> None:  # fmt: skip
    """Read the handwritten digits in pictures.

    If a picture cannot be read, neocog reports it on stderr, reads the others, and ends with exit code 1.
    """
    from neocog.batch.cluster import Cluster
    from neocog.batch.inputs import Shard, is_one_file
    from neocog.batch.run import Request, read_all
    from neocog.cli.progress import Counter
    from neocog.reading.formats import OF_PAGES, Format, kind_of
    from neocog.reading.forms import load_form
    from neocog.reading.pictures import foreign
    from neocog.reading.policy import Policy, parse_share
    from neocog.reading.reader import Reader

    if json and format not in (None, "json"):
        raise UsageError(f"--json and --format {format} exclude each other; leave one out")
    output = None if output == "-" else output
    table = form is not None and (output is None or not Path(output).suffix or foreign(output))
    format = "json" if json else format or ("csv" if table else kind_of(output))
    if rotate not in ("auto", "0", "90", "180", "270"):
        raise UsageError(f"--rotate {rotate}: expected auto, 0, 90, 180 or 270")
    if long_side is not None and long_side != "full" and not long_side.isdecimal():
        raise UsageError(f"--long-side {long_side}: expected a number of pixels, or full")
    of_pages = {"--pattern": pattern is not None, "--valid": valid is not None, "--mirror": mirror,
                "--rotate": rotate != "auto"}  # fmt: skip
    also = {"--long-side": long_side is not None, f"--format {format}": format in OF_PAGES}
    if isolated and (names := [name for name, given in (of_pages | also).items() if given]):
        raise UsageError(f"{names[0]} is for pages, but --isolated reads digits; leave one out")
    drawn = {"--save-overlay": overlay is not None, "--report": report is not None}
    others = of_pages | {"--isolated": isolated, "--digits-only": digits_only} | drawn
    if form is not None and (names := [name for name, given in others.items() if given]):
        serve = "; neocog serve has a page of forms, to look at the cells" * (names[0] in drawn)
        why = f"--form says what is read and where, so {names[0]} has no place"
        raise UsageError(f"{why}; leave one out{serve}")
    sheets = None if form is None else load_form(form)
    request = Request(
        tuple(inputs),
        Format(format, names=not is_one_file(inputs), timings=timings, source=inputs[0],
               fields=None if sheets is None else sheets.names),
        output, null=null, isolated=isolated, resume=resume, ordered=ordered, workers=workers,
        shard=None if shard is None else Shard.parse(shard),
        cluster=None if ray is None else Cluster(ray, device, precision, plan, workers),
        batch=batch, overlay=overlay, report=report, force=force, verbose=verbose, quiet=quiet, form=sheets,
    )  # fmt: skip
    if ray is not None:  # the cluster has the networks
        device, precision, plan = "cpu", None, "default"
    share = None if max_error is None else parse_share(max_error)
    opened = Reader(
        model or (DEFAULT if isolated else None), device=device, precision=precision, plan=plan, batch=batch,
        finder=finder, min_p=min_p, max_error=None if isolated else share,
        pattern=pattern, valid=valid, rotate=None if rotate == "auto" else int(rotate),
        long_side=int(long_side) if long_side and long_side != "full" else long_side, mirror=mirror,
        digits_only=digits_only,
    )  # fmt: skip
    opened = opened if sheets is None else opened.for_sheets()
    if isolated and opened.kind == "lines":
        raise UsageError(f"model {opened.model.name} reads lines, but --isolated digits; leave one out")
    if isolated and share is not None:
        opened = opened.changed(policy=Policy.of(opened.model, min_p=min_p, max_error=share))
    begin = time.perf_counter()
    # on the screen records would stand in the bar's way
    bar = Counter("reading", shown=not quiet and (output is not None or not sys.stdout.isatty()))
    try:
        bar.start(request.count)
        tally = read_all(request, opened, watch=bar.add)
    finally:
        bar.close()
    rate = (tally.inputs - tally.earlier) / (time.perf_counter() - begin)
    if resume and not quiet and tally.inputs == tally.earlier > 0:
        tell(f"all inputs ({tally.earlier}) were already read")
    if not quiet and tally.inputs > 1 and (tally.failed or tally.inputs > tally.earlier):
        earlier = f" ({tally.earlier:,} pictures read before)" if tally.earlier else ""
        skipped = f"{tally.skipped:,} skipped"
        if tally.skipped and not verbose:
            more = "; -v names all" if tally.skipped > len(tally.named) else ""
            skipped += f" ({', '.join(tally.named)}{more})"
        pages = f"{tally.pages:,} pages{earlier}, {tally.empty:,} empty, {tally.doubtful:,} with ?"
        tell(f"{pages}, {skipped}, {tally.failed:,} failed; {rate:.3g} pictures a second")
    if tally.failed or tally.unsaved:
        raise typer.Exit(1)
