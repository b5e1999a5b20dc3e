"""file:// and shared_filesystem:// with real processes, killed ones and damaged files."""
import json
import os
import shutil
import tempfile

from rdzv_ranks import Rank, results, run

SOON = 10
SCHEMES = ("file", "shared_filesystem")


class Folder:
    """A temporary directory; `path` in it does not exist yet."""

    def __enter__(self):
        self.root = tempfile.mkdtemp(prefix="rdzv.")
        self.path = os.path.join(self.root, "store")
        return self

    def __exit__(self, *unused):
        shutil.rmtree(self.root)


def test_ranks_meet_and_clean_up():
    for scheme in SCHEMES:
        with Folder() as folder:
            reports = results([Rank(f"{scheme}://{folder.path}", r, 4) for r in (3, 1, 0, 2)])
            assert sorted(r["rank"] for r in reports) == [0, 1, 2, 3], reports
            assert all(r["hello"] == "from 0;from 1;from 2;from 3;" for r in reports), reports
            assert os.listdir(folder.root) == [], os.listdir(folder.root)


def test_ranks_are_assigned():
    with Folder() as folder:
        reports = results([Rank(f"shared_filesystem://{folder.path}", world=3) for _ in range(3)])
        assert sorted(r["rank"] for r in reports) == [0, 1, 2], reports
    with Folder() as folder:
        report = Rank(f"file://{folder.path}", world=3).result()
        assert report["kind"] == "spec" and "rank" in report["message"], report


def test_concurrent_adds_lose_nothing():
    with Folder() as folder:
        reports = results([Rank(f"file://{folder.path}", r, 4, adds=100) for r in range(4)])
        sums = sorted(s for r in reports for s in r["sums"])
        assert sums == list(range(1, 401)), sums


def test_files_of_others_stay():
    with Folder() as folder:
        os.mkdir(folder.path)
        mine = os.path.join(folder.path, "precious.txt")
        open(mine, "w").close()
        results([Rank(f"shared_filesystem://{folder.path}", r, 2) for r in (0, 1)])
        assert os.listdir(folder.path) == ["precious.txt"], os.listdir(folder.path)


def test_the_same_path_serves_run_after_run():
    with Folder() as folder:
        for _ in range(3):
            reports = results([Rank(f"file://{folder.path}", r, 2) for r in (0, 1)])
            assert all("hello" in r for r in reports), reports


def test_leftover_of_a_killed_run_is_named():
    for scheme in SCHEMES:
        with Folder() as folder:
            killed = [Rank(f"{scheme}://{folder.path}", r, 2, hold=1) for r in (0, 1)]
            for rank in killed:
                rank.first_line()
            for rank in killed:
                rank.kill()
            left = os.path.join(folder.path, "dtorch.run")
            assert os.path.isdir(left)
            fresh = [Rank(f"{scheme}://{folder.path}", r, 2) for r in (0, 1)]
            for rank, report in zip(fresh, results(fresh)):
                assert report["kind"] == "cannot_create" and left in report["message"], report
                assert any(str(k.process.pid) in report["message"] for k in killed) and "dead" in report["message"], report
                assert f"rm -r {left}" in report["help"] and rank.seconds < SOON, report
            shutil.rmtree(left)
            assert all("hello" in r for r in results([Rank(f"{scheme}://{folder.path}", r, 2) for r in (0, 1)]))


def test_leftover_of_an_earlier_boot_is_named():
    for scheme in SCHEMES:
        with Folder() as folder:
            killed = Rank(f"{scheme}://{folder.path}", 0, 1, hold=1)
            killed.first_line()
            killed.kill()
            left = os.path.join(folder.path, "dtorch.run")
            for name in os.listdir(left):
                if name.startswith("m."):
                    path = os.path.join(left, name)
                    with open(path) as file:
                        record = json.load(file)
                    # The process id may well be somebody's now.
                    record.update(machine="0" * 36 + record["machine"][36:], boot="0" * 36, pid=os.getpid(), run_id="older")
                    with open(path, "w") as file:
                        json.dump(record, file)
            rank = Rank(f"{scheme}://{folder.path}", 0, 1)
            report = rank.result()
            assert report["kind"] == "cannot_create" and "before this machine was started anew" in report["message"], report
            assert rank.seconds < SOON, rank.seconds


def test_a_stale_file_is_named():
    with Folder() as folder:
        with open(folder.path, "wb") as stale:
            stale.write(os.urandom(100))
        rank = Rank(f"file://{folder.path}", 0, 2)
        report = rank.result()
        assert report["kind"] == "cannot_create" and folder.path in report["message"] and "100 bytes" in report["message"]
        assert os.path.getsize(folder.path) == 100 and rank.seconds < SOON


def test_one_survivor_cleans_up_after_killed_ranks():
    with Folder() as folder:
        ranks = [Rank(f"file://{folder.path}", r, 3, hold=1) for r in range(3)]
        for rank in ranks:
            rank.first_line()
        ranks[0].kill()
        ranks[1].kill()
        ranks[2].process.communicate(input="\n", timeout=60)
        assert os.listdir(folder.root) == [], os.listdir(folder.root)


def test_restart_of_the_same_run_goes_on():
    with Folder() as folder:
        killed = [Rank(f"file://{folder.path}", r, 2, hold=1, run_id="job7") for r in (0, 1)]
        for rank in killed:
            rank.first_line()
        for rank in killed:
            rank.kill()
        again = results([Rank(f"file://{folder.path}", r, 2, run_id="job7", attempt=1) for r in (0, 1)])
        assert all("hello" in r for r in again), again
        assert os.listdir(folder.root) == []
        alive = [Rank(f"file://{folder.path}", r, 2, hold=1, run_id="job7") for r in (0, 1)]
        for rank in alive:
            rank.first_line()
        report = Rank(f"file://{folder.path}", 0, 2, run_id="job8").result()
        assert report["kind"] == "cannot_create" and "in use" in report["message"] and "job7" in report["message"], report
        for rank in alive:
            rank.kill()


def test_garbage_in_the_folder_is_named_or_ignored():
    with Folder() as folder:
        inner = os.path.join(folder.path, "dtorch.run")
        os.makedirs(inner)
        for name in ("m.garbage", "k.", "t.0", "k.unrelated@1", "README"):
            with open(os.path.join(inner, name), "wb") as garbage:
                garbage.write(b"\xff{}" * 9)
        reports = results([Rank(f"file://{folder.path}", r, 2) for r in (0, 1)])
        assert all("hello" in r for r in reports), reports
        # What is not dtorch's stays.
        left = [os.path.join(p, n) for p, _, names in os.walk(folder.path) for n in names]
        assert any(p.endswith("README") for p in left), left
    with Folder() as folder:
        inner = os.path.join(folder.path, "dtorch.run")
        os.makedirs(inner)
        torn = os.path.join(inner, "k.dtorch%2Frun%2F0%2Fmembers@1")
        with open(torn, "wb") as file:
            file.write(b"dtk1\0\0")
        ranks = [Rank(f"file://{folder.path}", r, 2) for r in (0, 1)]
        for rank, report in zip(ranks, results(ranks)):
            assert report["kind"] == "lost" and torn in report["message"] and "damaged" in report["message"], report
            assert "6 bytes" in report["message"] and rank.seconds < SOON, report


def test_mistakes_are_told_to_everyone():
    for scheme in SCHEMES:
        with Folder() as folder:
            ranks = [Rank(f"{scheme}://{folder.path}", r, w) for r, w in ((0, 2), (1, 3))]
            for rank, report in zip(ranks, results(ranks)):
                assert report["kind"] == "disagree" and rank.seconds < SOON, report
            assert os.listdir(folder.root) == []
        with Folder() as folder:
            ranks = [Rank(f"{scheme}://{folder.path}", r, 3, timeout_ms=2000) for r in (1, 2)]
            for rank, report in zip(ranks, results(ranks)):
                assert report["kind"] == "timeout" and report["missing"] == [0], report
                assert 1.9 < rank.seconds < 2 + SOON
            assert os.listdir(folder.root) == []


def test_folder_that_cannot_be_made():
    with Folder() as folder:
        report = Rank(f"file://{folder.root}/no/such/parent", 0, 2).result()
        assert report["kind"] == "cannot_create" and "no/such/parent" in report["message"], report


if __name__ == "__main__":
    run(globals())
