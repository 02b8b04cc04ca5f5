"""A process as FLARE's and Flower's are: it has started others, in sessions of their own, and threads that do not end.

Run by ``first.py`` with the way to end, and a file to say so in once it is there.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

from eigenpact.engines.signals import heed, unwinding


def hang() -> None:
    threading.Thread(target=time.sleep, args=(600,)).start()
    child = subprocess.Popen(["sh", "-c", "trap '' TERM; sleep 600 & wait"], start_new_session=True)
    path = Path(sys.argv[2])
    path.with_suffix(".part").write_text(str(child.pid))
    path.with_suffix(".part").rename(path)
    time.sleep(600)


if __name__ == "__main__":
    if sys.argv[1] == "heed":
        heed("the test", lambda: print("took leave", flush=True))
        hang()
    elif sys.argv[1] == "stuck":
        heed("the test", lambda: time.sleep(600))
        hang()
    else:
        with unwinding("the test"):
            try:
                hang()
            finally:
                print("took leave", flush=True)
