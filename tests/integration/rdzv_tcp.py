"""tcp:// and env:// with real processes: who meets, and how each mistake is told, to all ranks and in time."""
import os
import socket
import time

from rdzv_ranks import Rank, free_port, results, run

SOON = 10  # seconds; the promise is about one, on a machine that is not loaded


def meet(init, world=2, **options):
    reports = results([Rank(init, r, world, **options) for r in reversed(range(world))])
    assert sorted(r["rank"] for r in reports) == list(range(world)), reports
    hello = "".join(f"from {r};" for r in range(world))
    assert all(r["hello"] == hello and r["world_size"] == world for r in reports), reports
    return reports


def test_ipv4_ipv6_and_names_meet():
    meet(f"tcp://127.0.0.1:{free_port()}")
    meet(f"tcp://localhost:{free_port()}", world=3)
    meet(f"tcp://{socket.gethostname()}:{free_port()}")
    if os.path.exists("/proc/net/if_inet6"):
        meet(f"tcp://[::1]:{free_port('::1')}")


def test_rank_and_world_size_from_the_url():
    port = free_port()
    reports = results([Rank(f"tcp://127.0.0.1:{port}?rank={r}&world_size=2") for r in (0, 1)])
    assert [r["rank"] for r in reports] == [0, 1], reports


def test_server_may_come_last():
    port = free_port()
    early = Rank(f"tcp://127.0.0.1:{port}", 1, 2)
    time.sleep(1)
    late = Rank(f"tcp://127.0.0.1:{port}", 0, 2)
    assert [r["rank"] for r in results([late, early])] == [0, 1]


def env(rank, world, port, **more):
    return {"RANK": str(rank), "WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), **more}


def test_env_variables_of_launchers():
    port = free_port()
    reports = results([Rank("env://", environment=env(r, 2, port)) for r in (0, 1)])
    assert [r["rank"] for r in reports] == [0, 1], reports
    port = free_port()
    slurm = [{"SLURM_PROCID": str(r), "SLURM_NTASKS": "2", "SLURM_LOCALID": str(r), "SLURM_JOB_ID": "77", "SLURM_STEP_ID": "0",
              "SLURM_STEP_NODELIST": "localhost", "MASTER_PORT": str(port)} for r in (0, 1)]
    reports = results([Rank("env://", environment=e) for e in slurm])
    assert [r["rank"] for r in reports] == [0, 1], reports


def test_missing_variables_are_named():
    report = Rank("env://", environment={"RANK": "0"}).result()
    assert report["kind"] == "spec", report
    for name in ("WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        assert name in report["message"] and name in report["help"], report


def test_wrong_world_size_is_told_to_everyone_at_once():
    for sizes in ((2, 3), (3, 2), (3, 2, 3)):
        init = f"tcp://127.0.0.1:{free_port()}"
        ranks = [Rank(init, r, size) for r, size in enumerate(sizes)]
        for rank, report in zip(ranks, results(ranks)):
            assert report["kind"] == "disagree", report
            assert "world size: " in report["message"] and "2 on" in report["message"] and "3 on" in report["message"], report
            assert rank.seconds < SOON, rank.seconds


def test_a_rank_that_comes_after_a_disagreement_hears_of_it():
    init = f"tcp://127.0.0.1:{free_port()}"
    ranks = [Rank(init, r, size) for r, size in enumerate((3, 2))]
    time.sleep(0.4)  # the two have met, or will before the third has started
    ranks.append(Rank(init, 2, 3))
    for rank, report in zip(ranks, results(ranks)):
        assert report["kind"] == "disagree", report
        assert rank.seconds < SOON, rank.seconds


def test_digests_that_differ_show_the_lines():
    init = f"tcp://127.0.0.1:{free_port()}"
    ranks = [Rank(init, r, 2, digest=f"d{r}", digest_text=f"epochs: 5\noptimizer.lr: 0.{r + 1}") for r in (0, 1)]
    for rank, report in zip(ranks, results(ranks)):
        assert report["kind"] == "disagree", report
        assert "d0" in report["message"] and "d1" in report["message"], report
        assert "optimizer.lr: " in report["message"] and "0.1 on rank 0" in report["message"], report
        assert "epochs" not in report["message"] and rank.seconds < SOON, report


def test_duplicate_rank_is_refused():
    init = f"tcp://127.0.0.1:{free_port()}"
    ranks = [Rank(init, r, 3) for r in (0, 1, 1)]
    for report in results(ranks):
        assert report["kind"] == "disagree" and "rank 1 came twice" in report["message"], report
        assert str(ranks[1].process.pid) in report["message"] and str(ranks[2].process.pid) in report["message"], report


def test_missing_rank_is_named_at_the_deadline():
    init = f"tcp://127.0.0.1:{free_port()}"
    ranks = [Rank(init, r, 4, timeout_ms=5000) for r in (0, 2)]
    for rank, report in zip(ranks, results(ranks)):
        assert report["kind"] == "timeout" and report["missing"] == [1, 3], report
        assert "ranks 1,3 of 4" in report["message"] and socket.gethostname() in report["message"], report
        assert 4.5 < rank.seconds < 5 + SOON, rank.seconds
        assert "ranks 1,3 of 4 have not come" in rank.stderr, rank.stderr


def test_missing_rank_zero_is_said():
    port = free_port()
    rank = Rank(f"tcp://127.0.0.1:{port}", 1, 2, timeout_ms=1500)
    report = rank.result()
    assert report["kind"] == "timeout" and f"127.0.0.1:{port}" in report["message"], report
    assert "refused" in report["message"] and 1.4 < rank.seconds < SOON, report
    report = Rank("tcp://no-such-host.invalid:2345", 1, 2, timeout_ms=1500).result()
    assert report["kind"] == "timeout" and "name not found" in report["message"], report


def test_busy_port_names_its_owner():
    for host, family in (("127.0.0.1", socket.AF_INET), ("localhost", socket.AF_INET)):
        with socket.socket(family) as holder:
            holder.bind(("127.0.0.1", 0))
            holder.listen()
            rank = Rank(f"tcp://{host}:{holder.getsockname()[1]}", 0, 2)
            report = rank.result()
        assert report["kind"] == "os_resource" and f"(pid {os.getpid()})" in report["message"], report
        assert rank.seconds < SOON, rank.seconds


def test_listener_that_is_no_store():
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        rank = Rank(f"tcp://127.0.0.1:{silent.getsockname()[1]}", 1, 2, timeout_ms=1500)
        report = rank.result()
    assert report["kind"] == "timeout" and "does not answer" in report["message"], report
    assert rank.seconds < SOON, rank.seconds


def test_stopped_server_does_not_hold_the_others():
    init = f"tcp://127.0.0.1:{free_port()}"
    server = Rank(init, 0, 3, timeout_ms=60000)
    waiting = Rank(init, 1, 3, timeout_ms=20000)
    waiting.until_waiting()
    server.process.send_signal(19)
    report = waiting.result()
    server.kill()
    assert report["kind"] == "timeout", report
    assert waiting.seconds < 20 + SOON, waiting.seconds


def test_killed_server_is_a_lost_store():
    init = f"tcp://127.0.0.1:{free_port()}"
    server = Rank(init, 0, 3)
    waiting = Rank(init, 1, 3)
    waiting.until_waiting()
    server.kill()
    report = waiting.result()
    assert report["kind"] == "lost" and "is gone" in report["message"], report


def test_store_that_outlives_an_attempt():
    """As under torchrun: an agent serves the store; a first attempt's ranks die joined or joining; the next one forms all the same."""
    port = free_port()
    agent = Rank(f"tcp://127.0.0.1:{port}", 0, 1, hold=1)
    agent.first_line()

    def ranks(restarts, only=(0, 1), **options):
        return [Rank("env://", environment=env(r, 2, port, TORCHELASTIC_USE_AGENT_STORE="True", LOCAL_RANK=str(r),
                                               TORCHELASTIC_RUN_ID="job", TORCHELASTIC_RESTART_COUNT=str(restarts[r])),
                     **options) for r in only]

    first = ranks((0, 0), hold=1)
    for rank in first:
        rank.first_line()
    for rank in first:
        rank.kill()
    half = ranks((1, 1), only=(1,))
    half[0].until_waiting()
    half[0].kill()
    half = ranks((1, 1), only=(0,))
    half[0].until_waiting()
    half[0].kill()
    # The restart counts of two nodes differ.
    reports = results(ranks((3, 2)))
    assert [r["rank"] for r in reports] == [0, 1] and all("hello" in r for r in reports), reports
    agent.kill()


def test_a_rank_too_many_is_refused():
    port = free_port()
    ranks = [Rank(f"tcp://127.0.0.1:{port}", r, 2, hold=1) for r in (0, 1)]
    for rank in ranks:
        rank.first_line()
    late = Rank(f"tcp://127.0.0.1:{port}", 1, 2)
    report = late.result()
    assert report["kind"] == "disagree" and "one too many" in report["message"], report
    for rank in ranks:
        rank.process.stdin.close()
    for rank in ranks:
        rank.process.wait(30)


def test_loopback_master_is_refused_for_several_machines():
    environment = {"SLURM_PROCID": "1", "SLURM_NTASKS": "2", "SLURM_LOCALID": "0", "SLURM_NTASKS_PER_NODE": "1",
                   "SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "MASTER_ADDR": "localhost"}
    report = Rank("env://", environment=environment).result()
    assert report["kind"] == "spec" and "loopback" in report["message"] and "MASTER_ADDR" in report["help"], report


if __name__ == "__main__":
    run(globals())
