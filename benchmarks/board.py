#!/usr/bin/env python3
"""Time from a new line of metrics.jsonl to its pixel on the page of `lockstep board`, for a run with many points.

usage: benchmarks/board.py build/lockstep [POINTS] [REPEATS]

Needs chromium and chromedriver. Prints the time to read the file, and to show a new point: the median and the maximum.
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request


def line(step):
    return '{"kind":"step","step":%d,"time":%.3f,"loss":%.6f}\n' % (step, 1.8e9 + step / 100, 1 + 1 / (1 + step % 1000))


def write_metrics(path, points):
    with open(path, "w") as file:
        file.write('{"kind":"start","step":0,"time":1800000000,"title":"benchmark","total_steps":%d,"config":{}}\n' % points)
        for begin in range(1, points + 1, 100_000):
            file.write("".join(line(step) for step in range(begin, min(begin + 100_000, points + 1))))


def request(url, body=None, method=None):
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(url, data, method=method), timeout=300) as answer:
        return json.load(answer)["value"]


def wait_for(condition, seconds=300):
    end = time.time() + seconds
    while time.time() < end:
        try:
            if condition():
                return
        except OSError:
            pass
        time.sleep(0.02)
    sys.exit("board.py: a wait of %d s ended without success" % seconds)


# Resolves with the time (in ms since 1970) of the frame that shows the step.
SHOWN = """
const [step, done] = arguments;
const look = () => {
  const canvas = document.querySelector('canvas[aria-label^="loss "]');
  if (canvas && canvas.dataset.lastStep === step) done(performance.timeOrigin + performance.now());
  else requestAnimationFrame(look);
};
look();
"""


def main():
    program, points = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 10_000_000
    repeats = int(sys.argv[3]) if len(sys.argv) > 3 else 20
    folder = tempfile.mkdtemp()
    processes = []
    try:
        path = os.path.join(folder, "runs", "run", "metrics.jsonl")
        os.makedirs(os.path.dirname(path))
        write_metrics(path, points)
        print("file: %d points, %.0f MB" % (points, os.path.getsize(path) / 1e6), flush=True)
        board = subprocess.Popen([program, "board", "--runs", os.path.join(folder, "runs")], stdout=subprocess.PIPE, text=True)
        processes.append(board)
        url = board.stdout.readline().strip()
        driver = "http://127.0.0.1:9517"
        processes.append(subprocess.Popen(["chromedriver", "--port=9517", "--silent"]))
        wait_for(lambda: request(driver + "/status")["ready"])
        arguments = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                     "--user-data-dir=" + os.path.join(folder, "profile")]
        session = request(driver + "/session", {"capabilities": {"alwaysMatch": {
            "goog:chromeOptions": {"args": arguments}, "timeouts": {"script": 300_000}}}})["sessionId"]
        page = driver + "/session/" + session
        begin = time.time()
        request(page + "/url", {"url": url})
        shown = lambda step: request(page + "/execute/async", {"script": SHOWN, "args": [str(step)]})
        print("read and drawn: %.2f s" % (shown(points) / 1e3 - begin), flush=True)
        times = []
        for step in range(points + 1, points + 1 + repeats):
            time.sleep(0.5)  # as between two steps of a run
            with open(path, "a") as file:
                file.write(line(step))
            begin = time.time()
            times.append(shown(step) - 1e3 * begin)
        print("new point shown: median %.0f ms, maximum %.0f ms" % (statistics.median(times), max(times)))
        request(page, method="DELETE")  # ends the browser
    finally:
        for process in processes:
            process.terminate()
            process.wait()
        shutil.rmtree(folder, ignore_errors=True)


main()
