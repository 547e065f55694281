"""What peers.py --device cuda makes of its results: lines, crossovers, Markdown. No measurement here.

A cell is a dictionary: its settings, "ours" and "peers" (names), and "times", which has for each name
{"seconds", "peak_bytes", "how"} or {"error", "message"}. A cell with a "row" (its name) stands in the table of aims,
the others in the tables by length.
"""
import itertools
import math

OURS = ["full", "clustered-100", "i-clustered-100"]
PEERS = ["flash", "cuDNN", "efficient", "materialized"]
FULL = ["full", *PEERS]  # these compute all pairs


def group(cell):
    return cell["precision"], cell["head_size"], cell["pass"]


def group_title(key):
    return f"{key[0]}, D = {key[1]}, {'forward + backward' if key[2] == 'both' else 'forward'}"


def title(cell):
    return (f"{cell.get('row') or cell['what']}: N = {cell['length']:,}, B = {cell['batch']}, H = {cell['heads']}, "
            f"{group_title(group(cell))}")


def groups(cells):
    """The cells of the tables by length, in groups of one precision, head size and pass."""
    found = {}
    for cell in sorted(cells, key=lambda cell: cell["length"]):
        if not cell.get("row"):
            found.setdefault(group(cell), []).append(cell)
    return found


def digits(x):
    """Three significant ones."""
    return f"{x:,.0f}" if abs(x) >= 100 else f"{x:.3g}"


def seconds(cell, name):
    """None where there is no time."""
    return cell["times"].get(name, {}).get("seconds")


def rate(cell, name):
    """TFLOP/s: 4 B H N^2 D, and 3.5 times that with gradients. None where not all pairs are computed."""
    if name not in FULL or cell["what"] != "attention" or not seconds(cell, name):
        return None
    pairs = cell["batch"] * cell["heads"] * cell["length"] ** 2
    return 4 * pairs * cell["head_size"] * (3.5 if cell["pass"] == "both" else 1) / seconds(cell, name) * 1e-12


def ratio(cell, peer, spec):
    """peer / ours: above 1, ours is faster."""
    return seconds(cell, peer) / seconds(cell, spec) if seconds(cell, peer) and seconds(cell, spec) else None


def number(x):
    return "-" if x is None else digits(x)


def microseconds(cell, name):
    return cell["times"].get(name, {}).get("error") or number(seconds(cell, name) and seconds(cell, name) * 1e6)


def megabytes(cell, name):
    result = cell["times"].get(name, {})
    return result.get("error") or number(result.get("peak_bytes") and result["peak_bytes"] * 1e-6)


def ratios(cell, peer):
    return " / ".join(number(ratio(cell, peer, spec)) for spec in cell["ours"])


def cell_lines(cell):
    lines = [title(cell), f"  {'':22} {'us':>13} {'TFLOP/s':>8} {'MB':>8}  peer / {', '.join(cell['ours'])}"]
    for name, result in cell["times"].items():
        line = f"  {name:22} {microseconds(cell, name):>13} "
        if "error" in result:
            line += " ".join(result.get("message", "").split())[:100]
        else:
            line += f"{number(rate(cell, name)):>8} {megabytes(cell, name):>8}  "
            line += result.get("how", "") if name in cell["ours"] else f"{ratios(cell, name)}  {result.get('how', '')}"
        lines.append(line.rstrip())
    return "\n".join(lines)


def crossover(slow, fast):
    """The length from which `fast` stays faster, interpolated on straight lines between the logarithms.

    Both have seconds by length. None: it is not faster at the largest length that both have."""
    lengths = sorted(slow.keys() & fast.keys())
    gains = [math.log(slow[n] / fast[n]) for n in lengths]
    if not lengths or gains[-1] <= 0:
        return None
    behind = max((i for i, gain in enumerate(gains) if gain <= 0), default=None)
    if behind is None:
        return lengths[0]
    part = gains[behind] / (gains[behind] - gains[behind + 1])
    return lengths[behind] * (lengths[behind + 1] / lengths[behind]) ** part


def crossover_text(slow, fast):
    lengths = sorted(slow.keys() & fast.keys())
    if not lengths:
        return "-"
    at = crossover(slow, fast)
    if at is None:
        return f"not up to {lengths[-1]:,}"
    return f"{at:,.0f} or less" if at == lengths[0] else f"{at:,.0f}"


def by_length(cells, name):
    return {cell["length"]: seconds(cell, name) for cell in cells if seconds(cell, name)}


def crossovers(cells):
    found = []
    for key, members in groups(cells).items():
        for spec, other in itertools.product(OURS[1:], FULL):
            slow, fast = by_length(members, other), by_length(members, spec)
            found.append({"precision": key[0], "head_size": key[1], "pass": key[2], "variant": spec, "than": other,
                          "length": crossover(slow, fast), "text": crossover_text(slow, fast)})
    return found


def markdown(head, rows):
    return "\n".join("| " + " | ".join(row) + " |" for row in [head, ["---"] * len(head), *rows]) + "\n"


def verdict(value, must):
    return "-" if value is None or must is None else "met" if value >= must else "NOT MET"


def table_of_aims(cells):
    """Each beside its first peer."""
    rows = []
    for cell in cells:
        ours, peer = cell["ours"][0], cell["peers"][0]
        value = ratio(cell, peer, ours)
        rows.append([title(cell), microseconds(cell, ours), microseconds(cell, peer), number(value),
                     number(cell["must"]), number(cell["aim"]), verdict(value, cell["must"])])
    return markdown(["", "ours, us", "peer, us", "peer / ours", "must", "aim", ""], rows)


def tables_by_length(key, cells):
    """Times, ratios and memory of a group."""

    def table(what, names, text):
        head = ["", *(f"N = {cell['length']:,}" for cell in cells)]
        rows = [[name, *(text(cell, name) for cell in cells)] for name in names]
        return f"{where}: {what}\n\n{markdown(head, rows)}"

    def time_and_rate(cell, name):
        speed = rate(cell, name)
        return microseconds(cell, name) + (f" ({digits(speed)})" if speed else "")

    where = f"{group_title(key)}, B = {cells[0]['batch']}, H = {cells[0]['heads']}"
    names = list(dict.fromkeys(name for cell in cells for name in cell["times"]))
    peers = [name for name in names if name in PEERS]
    yield table("us (TFLOP/s)", names, time_and_rate)
    if peers:
        yield table(f"peer / ours, ours being {', '.join(OURS)}", peers, ratios)
    yield table("peak MB, with inputs and gradients", names, megabytes)


def tables(cells):
    parts = []
    aims = [cell for cell in cells if cell.get("row")]
    if aims:
        parts.append(table_of_aims(aims))
    for key, members in groups(cells).items():
        parts.extend(tables_by_length(key, members))
    rows = [[group_title(key), spec, *(crossover_text(by_length(members, other), by_length(members, spec))
                                       for other in FULL)]
            for key, members in groups(cells).items() for spec in OURS[1:]]
    if rows:
        parts.append("The length from which a variant is faster than\n\n" + markdown(["", "", *FULL], rows))
    return "\n".join(parts)
