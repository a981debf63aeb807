"""``neocog export``: a model or the finder as ONNX, for other runtimes."""

from pathlib import Path
from typing import Annotated

import typer

from neocog.cli import options
from neocog.cli.options import option


def export(
    name: Annotated[
        str, typer.Argument(metavar="NAME|PATH", help="A model, or 'finder'.")
    ] = options.DEFAULT_MODEL,
    output: Annotated[str, option("-o --output", "FILE.onnx", "Where to write it.")] = "",
    maps: Annotated[bool, option("--maps", None, "With the responses of every layer as outputs.")] = False,
    force: options.Force = False,
) -> None:
    """Write a model, or the network that finds digits, as an ONNX file.

    A model takes digits of 28 x 28 pixels and gives labels, probabilities and scores, or, of lines, strips
    of 48 rows and gives log likelihoods of characters; the finder takes a grey picture and gives boxes.
    """
    from neocog.files import atomic_write
    from neocog.network.lines import load_lines
    from neocog.network.model import load_model
    from neocog.network.onnx import OPSET, lines_to_onnx, model_to_onnx
    from neocog.network.registry import find_model, kind_of
    from neocog.vision.finder_export import finder_to_onnx
    from neocog.vision.finder_model import load_finder

    path = find_model(name)
    target = Path(output or f"{path.stem}.onnx")
    options.check_new(target, "-o", force=force)
    if (kind := kind_of(path)) == "finder":
        if maps:
            raise typer.BadParameter("--maps is for models; leave it out with the finder")
        finder = load_finder(path)
        what, data = finder.id, finder_to_onnx(finder)
    elif kind == "lines":
        lines = load_lines(path)
        what, data = lines.id, lines_to_onnx(lines, maps=maps)
    else:
        model = load_model(path)
        what, data = model.id, model_to_onnx(model, maps=maps)
    with atomic_write(target) as stream:
        stream.write(data)
    print(f"{target}: {what}, ONNX opset {OPSET}, {len(data) / 2**20:.1f} MiB")
