#!/usr/bin/env python3
# picture.py COMMAND...: runs a command, and prints its first lines as a picture (SVG) of a terminal. race.svg was made by
#   apps/lessons/lesson start 11; apps/lessons/picture.py apps/lessons/lesson check 11 >apps/lessons/race.svg
import html
import re
import subprocess
import sys
import textwrap

WIDTH, LINES = 84, 2  # characters, lines of the command that are shown

output = subprocess.run(sys.argv[1:], stdout=subprocess.PIPE, text=True, errors="replace").stdout.splitlines()
lines = ["$ " + " ".join(sys.argv[1:])]
for line in output[:LINES]:
    line = re.sub(r"(thread|block|at) (?=[(\d])", "\\1\N{NO-BREAK SPACE}", line)
    lines += textwrap.wrap(line, WIDTH, subsequent_indent="     ", break_on_hyphens=False)
print(f"""<svg xmlns="http://www.w3.org/2000/svg" role="img" viewBox="0 0 {8 * WIDTH + 32} {22 * len(lines) + 24}">
<style>:root{{color-scheme:light dark;--paper:#f5f7f9;--ink:#1a222c;--bad:#c02020;--place:#0067a8;--who:#b84a00}}
@media(prefers-color-scheme:dark){{:root{{--paper:#1c2229;--ink:#e6ebf1;--bad:#ff7b72;--place:#62b5f0;--who:#f59a55}}}}
text{{font:13px ui-monospace,Menlo,Consolas,monospace;fill:var(--ink);white-space:pre}}rect{{fill:var(--paper)}}
.bad{{fill:var(--bad);font-weight:bold}}.place{{fill:var(--place)}}.who{{fill:var(--who)}}</style>
<rect width="100%" height="100%" rx="8"/>""")
for number, line in enumerate(lines):
    marked = html.escape(re.sub("[^ -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", " ", line))  # what XML allows
    for name, pattern in {"bad": r"^red:", "place": r"\w+\.cu:\d+", "who": r"(?:thread|block)\s\(\d+,\d+,\d+\)"}.items():
        marked = re.sub(pattern, rf'<tspan class="{name}">\g<0></tspan>', marked)
    print(f'<text x="16" y="{22 * number + 28}">{marked}</text>')
print("</svg>")
