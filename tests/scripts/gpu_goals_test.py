"""bench/gpu/gpu_goals.py and bench/gpu/gpu_watch.py: what figures of a GPU are good, and which cannot be true."""

import pathlib
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench/gpu"))

import gpu_prediction as prediction  # noqa: E402
from gpu_goals import CEILING, goals, kernel_goals  # noqa: E402
from gpu_watch import summary  # noqa: E402

GOOD = {"triax bf16": 620e3, "triax fp16": 610e3, "eager bf16": 400e3, "compiled bf16": 550e3}


def runs(speed, tensors=20, device=30, rounds=3):
    gpu = {"memory_mib": device * 1024}
    return [dict(tokens_per_second=speed, tensor_bytes=tensors * 2**30, gpu=gpu) for _ in range(rounds)]


def results(speeds=GOOD, gpu="NVIDIA H200", **sides):
    b64 = {side: runs(speed) for side, speed in speeds.items()}
    return {"gpu": gpu, "cases": {"b64": {"model": "124M", "sides": b64 | sides}}}


def missed(found):
    return [goal.what for goal in goals(found) if not goal.met]


class PredictionTest(unittest.TestCase):
    def test_stands_in_the_documentation_as_it_is_computed(self):
        said = prediction.markdown(prediction.read_kernels(ROOT / "bench/gpu/h200.jsonl"))
        self.assertIn(said, (ROOT / "docs/gpu.md").read_text())

    def test_products_are_those_of_the_model_three_times(self):
        flops = sum(k.count * k.flops for k in prediction.body() + prediction.head())
        weights = 12 * 12 * 768**2 + 50304 * 768
        self.assertEqual(flops, 3 * 2 * 65536 * weights)

    def test_the_step_is_possible(self):
        self.assertLess(65536 / prediction.total(prediction.kernels()) * 1e3, CEILING)

    def test_every_line_is_one_of_the_benchmark(self):
        source = (ROOT / "bench/gpu/cuda_kernels.cpp").read_text()
        for kernel in prediction.kernels():
            name = kernel.line.split("/")[1].split("+")[0].split("*")[0] if kernel.rate else kernel.line
            self.assertIn(f'"{kernel.line}"' if "matmul" not in kernel.line else f'"{name}"', source)

    def test_what_was_measured_stands_beside_it(self):
        lines = [{"name": "matmul/qkv+bias/65536x2304x768", "ms": 0.5}, {"name": "adamw/bf16 with master", "ms": 1.25}]
        said = prediction.markdown(lines)
        self.assertIn("| `matmul/qkv+bias` | 6.00 |", said)
        self.assertIn("| `adamw/bf16 with master` | 1.25 |", said)
        self.assertIn("| `norm/forward` |  |", said)


class GoalsTest(unittest.TestCase):
    def test_good_figures_reach_all_goals(self):
        self.assertEqual(missed(results()), [])
        self.assertEqual(len(goals(results())), 5)

    def test_what_was_not_measured_is_no_goal(self):
        self.assertEqual(goals({"gpu": "NVIDIA H200", "cases": {}}), [])

    def test_what_cannot_be_true_is_refused_on_either_side(self):
        for side in GOOD:
            self.assertIn(f"b64, {side}: possible", missed(results(GOOD | {side: 745001.0})))

    def test_each_goal_can_be_missed(self):
        self.assertEqual(missed(results(GOOD | {"triax bf16": 599e3, "compiled bf16": 500e3, "triax fp16": 590e3})),
                         ["B 64: tokens/s"])
        self.assertEqual(missed(results(GOOD | {"compiled bf16": 570e3})), ["B 64: times torch.compile"])
        self.assertEqual(missed(results(GOOD | {"triax fp16": 600e3})), ["B 64: fp16 times bf16"])
        for case, name, reached in ("b4-graph", "B 4", 1.0), ("tiny-graph", "2 layers", 1.3):
            for speed, misses in (reached, []), (reached - 0.01, [f"{name}: --graph times without"]):
                graph = {"triax bf16": runs(1e5), "triax bf16 --graph": runs(speed * 1e5)}
                found = results()
                found["cases"][case] = {"model": "124M", "sides": graph}
                self.assertEqual(missed(found), misses)

    def test_a_ratio_is_that_of_rounds(self):
        ours = [dict(run, tokens_per_second=speed) for run, speed in zip(runs(0), (600e3, 300e3, 610e3))]
        theirs = [dict(run, tokens_per_second=speed) for run, speed in zip(runs(0), (500e3, 250e3, 600e3))]
        found = results(**{"triax bf16": ours, "compiled bf16": theirs, "triax fp16": ours})
        times = [goal.found for goal in goals(found) if "torch.compile" in goal.what]
        self.assertEqual(times, ["1.200"])

    def test_memory_is_held_against_the_smaller_of_pytorchs(self):
        self.assertEqual(missed(results(**{"eager bf16": runs(400e3, 19, 30)})), ["B 64: peak memory of tensors, GiB"])
        self.assertEqual(missed(results(**{"triax bf16": runs(620e3, 20, 31)})), ["B 64: peak memory of device, GiB"])

    def test_tokens_per_second_are_asked_of_an_h200_only(self):
        slow = {side: speed / 3 for side, speed in GOOD.items()}
        self.assertEqual(missed(results(slow, gpu="NVIDIA A100-SXM4-80GB")), [])

    def test_kernels_are_held_against_a_copy(self):
        lines = [{"name": "norm/forward", "share_of_copy": 0.84}, {"name": "adamw", "share_of_copy": 0.86},
                 {"name": "copy/bf16", "share_of_copy": 1.0}, {"name": "matmul/x", "tflops": 1.0},
                 {"name": "norm/forward/1.5B", "share_of_copy": 0.5},
                 {"name": "norm/backward with the weights' gradients", "share_of_copy": 0.5}]
        self.assertEqual([(goal.what, goal.met) for goal in kernel_goals(lines)],
                         [("norm/forward: share of copy", False), ("adamw: share of copy", True)])


class WatchTest(unittest.TestCase):
    def test_clocks_count_while_the_gpu_works(self):
        idle, busy, slow = "345, 2619, 80, 40, 500", "1980, 2619, 650, 61, 9000", "1700, 2619, 690, 65, 8000"
        found = summary("\n".join([idle, idle, idle, busy, busy, slow, "1980, 26"]))
        self.assertEqual((found.sm_mhz, found.watts, found.degrees, found.memory_mib), ((1980, 1700), 650, 65, 9000))

    def test_what_is_not_supported_is_no_error(self):
        self.assertEqual(summary("1980, 2619, [N/A], 61, 9000\n").watts, 0)
        self.assertIsNone(summary(""))


if __name__ == "__main__":
    unittest.main()
