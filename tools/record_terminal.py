#!/usr/bin/env python3
"""Records a program in a terminal as an animated SVG, such as docs/images/train.svg:

    tools/record_terminal.py docs/images/train.svg 100 "lockstep train --devices 8 --epochs 2 --run-dir run"

The arguments are the SVG file, the columns of the terminal, and the command. Lines that do not change are written once;
each other line has an interval in which it is visible. The animation repeats.
"""
import fcntl, html, os, pty, re, select, struct, sys, termios, time

FRAME, HOLD = 0.15, 5.0  # seconds between two frames, and of the last one
LINE, LEFT, TOP, COLUMN = 19, 22, 62, 8.43  # pixels
COLORS = {31: "#f87171", 32: "#4ade80", 33: "#fbbf24", 34: "#60a5fa", 36: "#22d3ee"}
TOKEN = re.compile(r"\033\[[0-9;?]*[A-Za-z]|[^\033]", re.S)


class Screen:
    def __init__(self, columns):
        self.columns, self.row, self.column, self.style, self.rows, self.rest = columns, 0, 0, (), [[]], ""

    def write(self, text):
        text = self.rest + text
        end = 0
        for match in TOKEN.finditer(text):
            self.apply(match.group())
            end = match.end()
        self.rest = text[end:]

    def apply(self, token):
        if token == "\r":
            self.column = 0
        elif token == "\n":
            self.row += 1
            self.rows += [[] for _ in range(self.row + 1 - len(self.rows))]
        elif token[0] == "\033":
            if token[-1] in "JK":
                del self.rows[self.row][self.column:]
                if token[-1] == "J":
                    del self.rows[self.row + 1:]
            elif token[-1] == "m":
                codes = [int(code) for code in token[2:-1].split(";") if code]
                self.style = () if codes in ([], [0]) else tuple(codes)
        else:
            if self.column == self.columns:
                self.column = 0
                self.apply("\n")
            cells = self.rows[self.row]
            cells += [(" ", ())] * (self.column + 1 - len(cells))
            cells[self.column] = (token, self.style)
            self.column += 1

    def lines(self):
        return [tuple(row) for row in self.rows]


def record(command, columns):
    """The frames of a command: (seconds, lines)."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ.update(TERM="xterm", LC_ALL="C.UTF-8")
        os.execvp("/bin/sh", ["sh", "-c", "stty cols %d; exec %s" % (columns, command)])
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    screen, frames, began, decoder = Screen(columns), [], time.monotonic(), b""
    while True:
        try:
            data = os.read(terminal, 65536) if select.select([terminal], [], [], FRAME)[0] else None
        except OSError:
            break
        if data == b"":
            break
        if data:
            decoder += data
            text = decoder.decode("utf-8", "ignore")
            decoder = decoder[len(text.encode()):]
            screen.write(text)
        seconds = time.monotonic() - began
        if not frames or seconds - frames[-1][0] >= FRAME:
            frames.append((seconds, screen.lines()))
    os.waitpid(pid, 0)
    frames.append((time.monotonic() - began, screen.lines()))
    return frames


def spans(line):
    """The text of a line as tspans of equal style."""
    out, i = "", 0
    while i < len(line):
        j = i
        while j < len(line) and line[j][1] == line[i][1]:
            j += 1
        text, style = html.escape("".join(cell for cell, _ in line[i:j])), line[i][1]
        color = next((COLORS[code] for code in style if code in COLORS), "#9ca3af" if 2 in style else None)
        attributes = (' fill="%s"' % color if color else "") + (' font-weight="bold"' if 1 in style else "")
        out += "<tspan%s>%s</tspan>" % (attributes, text) if attributes else text
        i = j
    return out


def svg(command, columns, frames):
    total = frames[-1][0] + HOLD
    shown = {}  # (row, line) -> [begin, end) of its intervals
    for k, (seconds, lines) in enumerate(frames):
        end = frames[k + 1][0] if k + 1 < len(frames) else total
        for row, line in enumerate(lines):
            intervals = shown.setdefault((row, line), [])
            if intervals and abs(intervals[-1][1] - seconds) < 1e-9:
                intervals[-1][1] = end
            elif line:
                intervals.append([seconds, end])
    rows = max(row for row, line in shown if line) + 1
    width, height = round(2 * LEFT + columns * COLUMN), TOP + LINE * (rows + 1) + 8
    out = ['<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" font-family="DejaVu Sans '
           'Mono, Menlo, Consolas, monospace" font-size="14">' % (width, height, width, height),
           "<title>lockstep train in a terminal</title>",
           '<rect width="%d" height="%d" fill="white"/>' % (width, height),
           '<rect x="6" y="6" width="%d" height="%d" rx="10" fill="#111827"/>' % (width - 12, height - 12)]
    out += ['<circle cx="%d" cy="26" r="6" fill="%s"/>' % (28 + 20 * i, color)
            for i, color in enumerate(("#ef4444", "#f59e0b", "#22c55e"))]
    out.append('<text x="%d" y="%d" xml:space="preserve"><tspan fill="#22c55e" font-weight="bold">$ </tspan><tspan '
               'fill="#ffffff">%s</tspan></text>' % (LEFT, TOP, html.escape(command)))
    for (row, line), intervals in shown.items():
        for begin, end in intervals:
            times, values = [0, begin / total, end / total], ["hidden", "visible", "hidden"]
            if end >= total:
                times, values = times[:2], values[:2]
            animate = "" if begin == 0 and end >= total else (
                '<animate attributeName="visibility" dur="%.1fs" repeatCount="indefinite" calcMode="discrete" values="%s" '
                'keyTimes="%s"/>' % (total, ";".join(values), ";".join("%.4f" % t for t in times)))
            hidden = ' visibility="hidden"' if end < total else ""  # without animation, the last frame is seen
            out.append('<text x="%d" y="%d" fill="#e5e7eb"%s xml:space="preserve">%s%s</text>'
                       % (LEFT, TOP + LINE * (row + 1), hidden, animate, spans(line)))
    return "\n".join(out + ["</svg>", ""])


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    file, columns, command = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    text = svg(command, columns, record(command, columns))
    with open(file, "w") as out:
        out.write(text)
