"""Plants each kind of violation in a small tree and sees that check.py names it, and nothing else."""

import pathlib
import tempfile
import unittest

import check
import size

CLEAN = {
    "core/numbers/half.h": "#define TRIAX_HD inline\n",
    "core/tensor.h": '#include <vector>\n#include "triax/core/numbers/half.h"\n',
    "core/cpu/cpu.h": '#include "triax/core/tensor.h"\n',
    "core/backend.cpp": '#include "triax/core/cpu/cpu.h"\n#if TRIAX_CUDA\n#include "triax/core/cuda/cuda.h"\n#endif\n',
    "core/cuda/cuda.h": "#include <cuda_runtime.h>\n",
    "autograd/ops.h": '#include "triax/core/tensor.h"\n',
    "parallel/comm/processes/mpi_comm.cpp": "#include <mpi.h>\n",
    "parallel/comm/gpu/nccl_comm.cpp": "#include <cuda_runtime.h>\n#include <nccl.h>\n",
    "parallel/comm/group.h": "\n",
    "parallel/comm/launch/world.h": '#include "triax/parallel/comm/group.h"\n',
    "parallel/mesh.h": '#include "triax/parallel/comm/launch/world.h"\n',
    "parallel/data/bucket.h": '#include "triax/parallel/mesh.h"\n',
    "parallel/train/step/step.h": '#include "triax/parallel/data/bucket.h"\n',
    "examples/a.cpp": '#include "triax/autograd/ops.h"\n',
    "tests/core/a_test.cpp": '#include "triax/core/cpu/cpu.h"\n',
}


PLATE = "Lives here: a.\nUsed from outside: all headers.\nNever enters: c.\n"


def plates(files):
    """A door plate for every folder of the product."""
    return {f"{folder}/README.md": PLATE for folder in {file.rpartition("/")[0] for file in files}
            if folder.split("/")[0] in size.PRODUCT}


class CheckTest(unittest.TestCase):
    def setUp(self):
        size.CROWDED, size.WIDE, size.LONG = {}, {}, {}

    def violations(self, planted):
        with tempfile.TemporaryDirectory() as folder:
            for name, text in {**plates([*CLEAN, *planted]), **CLEAN, **planted}.items():
                path = pathlib.Path(folder) / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            return check.check(folder)[2]

    def expect(self, name, text, *words):
        violations = self.violations({name: text})
        self.assertEqual(len(violations), 1, violations)
        for word in (name, *words):
            self.assertIn(word, violations[0])

    def test_a_clean_tree_is_clean(self):
        self.assertEqual(self.violations({}), [])

    def test_folders_stand_in_a_line(self):
        self.expect("core/b.cpp", '#include "triax/autograd/ops.h"\n', ":1:", "core stands left of autograd")

    def test_folders_inside_parallel_stand_in_a_line(self):
        self.expect("parallel/comm/b.cpp", '#include "triax/parallel/mesh.h"\n',
                    ":1:", "parallel/comm may not include parallel/mesh")
        self.expect("parallel/mesh.cpp", '#include "triax/parallel/data/bucket.h"\n',
                    "parallel/mesh may not include parallel/data")
        self.expect("parallel/data/b.cpp", '#include "triax/parallel/train/step/step.h"\n',
                    "parallel/data may not include parallel/train")

    def test_siblings_inside_parallel_do_not_include_each_other(self):
        self.expect("parallel/pipeline/b.cpp", '#include "triax/parallel/data/bucket.h"\n',
                    "parallel/pipeline may not include parallel/data")
        self.assertEqual(self.violations(
            {"parallel/data/b.cpp": '#include "triax/parallel/data/bucket.h"\n'}), [])

    def test_folders_inside_comm_stand_in_a_line(self):
        self.expect("parallel/comm/b.cpp", '#include "triax/parallel/comm/launch/world.h"\n',
                    "parallel/comm may not include parallel/comm/launch")
        self.expect("parallel/comm/gpu/b.cpp", '#include "triax/parallel/comm/launch/world.h"\n',
                    "parallel/comm/gpu may not include parallel/comm/launch")

    def test_every_file_inside_parallel_has_a_place(self):
        self.expect("parallel/new/b.cpp", '#include "triax/parallel/mesh.h"\n',
                    "parallel/new/b.cpp has no place")

    def test_headers_of_libraries_bear_the_projects_name(self):
        self.expect("nn/b.cpp", '#include "core/tensor.h"\n', "core/tensor.h; headers of core,", "begin with triax/")
        planted = {"tests/a.h": "\n", "tests/b.cpp": '#include "triax/tests/a.h"\n'}
        self.assertIn("triax/tests/a.h; headers of core,", "".join(self.violations(planted)))

    def test_angle_brackets_do_not_hide_an_include(self):
        self.expect("core/b.cpp", "#include <triax/autograd/ops.h>\n", "core stands left of autograd")

    def test_nothing_includes_tests(self):
        planted = {"tests/a.h": "\n", "core/b.cpp": '#include "tests/a.h"\n'}
        self.assertIn("core includes tests", "".join(self.violations(planted)))

    def test_includes_start_at_the_repository(self):
        self.expect("core/b.cpp", '#include "tensor.h"\n', "includes start at the repository")

    def test_a_project_apart_includes_what_is_beside_it(self):
        self.assertEqual(self.violations({"examples/research/a.h": "\n", "examples/research/b.cpp":
                                          '#include "a.h"\n#include "triax/core/tensor.h"\n'}), [])
        self.expect("examples/research/b.cpp", '#include "c.h"\n', "there is no c.h")

    def test_headers_with_an_owner(self):
        self.expect("nn/b.cpp", '#include "triax/core/cuda/cuda.h"\n', "core/cuda/cuda.h belongs to")
        self.expect("nn/b.cpp", '#include "triax/core/cpu/cpu.h"\n', "core/cpu/cpu.h belongs to")
        self.expect("parallel/comm/b.cpp", "#include <mpi.h>\n", "mpi.h belongs to")
        self.expect("parallel/comm/b.cpp", "#include <nccl.h>\n", "nccl.h belongs to")
        self.expect("core/cpu/b.cpp", "  #  include <cuda_runtime.h>\n", "cuda_runtime.h belongs")

    def test_macros(self):
        self.expect("core/b.h", "#define MAX(a, b) a\n", "MAX is function-like")
        self.expect("core/b.h", "\n#define LIMIT 3\n", ":2:", "LIMIT")
        self.expect("tests/b.h", "# define TRIAX_HD(x) x\n", "function-like")

    def test_build_switches(self):
        self.expect("core/b.cpp", "#if TRIAX_CUDA\n", "TRIAX_CUDA is known in")

    def test_long_files(self):
        self.assertEqual(self.violations({"nn/b.cpp": "\n" * 500}), [])
        self.expect("nn/b.cpp", "\n" * 501, "501 lines")

    def test_long_functions(self):
        head, body = "Exit Trainer::train(int a,\n                    int b) {\n", "  f();\n"
        file = "nn/b.cpp"
        self.assertEqual(self.violations({file: head + body * 40 + "}\n" + "\n" * 50}), [])
        self.expect(file, head + body * 41 + "}\n", "Trainer::train: 41 lines; 40 is")
        method = "class A {\n public:\n  int f(int x) const {\n" + "    g();\n" * 41 + "  }\n};\n"
        self.expect("nn/b.h", method, "f: 41 lines")
        size.LONG = {"nn/b.cpp Trainer::train": 45}
        self.assertEqual(self.violations({file: head + body * 45 + "}\n"}), [])
        self.expect(file, head + body * 44 + "}\n", "lower its exception of 45")
        self.expect(file, head + body * 40 + "}\n", "remove its exception")

    def test_wide_classes(self):
        methods = [f"  virtual void f{i}(const std::vector<int>& x,\n      std::function<void(int)> y = {{}}) = 0;\n"
                   for i in range(20)]
        fields = "  std::function<void(int)> done;\n  int n = g(3);\n  using F = int(int);\n  A(int x);\n"
        of = lambda count: "class A {\n public:\n" + fields + "".join(methods[:count]) + "};\n"
        self.assertEqual(self.violations({"nn/b.h": of(20)}), [])
        methods.append("  bool ends() const { return n > 3; }\n")
        self.expect("nn/b.h", of(21), "A: 21 methods; 20 is")

    def test_crowded_folders(self):
        self.assertEqual(self.violations({f"nn/b{i}.h": "" for i in range(25)}), [])
        found = self.violations({f"nn/b{i}.h": "" for i in range(26)})
        self.assertEqual(len(found), 1, found)
        self.assertIn("nn: 26 files; 25 is", found[0])

    def test_the_size_of_the_house(self):
        before, size.MAX_LINES = size.MAX_LINES, 1000
        try:
            self.assertEqual(self.violations({"nn/b.h": "\n" * 400, "nn/c.h": "\n" * 400, "tests/d.h": "\n" * 400}), [])
            found = self.violations({"nn/b.h": "\n" * 500, "nn/c.h": "\n" * 500})
            self.assertEqual(len(found), 1, found)
            self.assertIn("1000 is the ceiling", found[0])
        finally:
            size.MAX_LINES = before

    def test_door_plates(self):
        for plate in ("", "Lives here: a.\nNever enters: c.\n"):
            found = self.violations({"optim/b.h": "", "optim/README.md": plate})
            self.assertEqual(len(found), 1, found)
            self.assertIn("optim/README.md: expected three lines", found[0])

    def test_door_plates_name_what_is_used(self):
        planted = {"optim/b.h": "", "optim/c.h": "", "optim/d/e.h": '#include "triax/optim/c.h"\n', "examples/f.cpp": '#include "triax/optim/b.h"\n'}
        for says, count in (("`b.h`.", 0), ("all headers.", 0), ("`c.h`.", 1), ("nothing.", 1)):
            plate = f"Lives here: a.\nUsed from outside: {says}\nNever enters: c.\n"
            found = self.violations({**planted, "optim/README.md": plate})
            self.assertEqual(len(found), count, found)
            self.assertTrue(all("optim/README.md: `Used from outside` does not name b.h" in line for line in found), found)

    def test_a_long_reading_path(self):
        planted = {"README.md": "\n" * 400, "autograd/engine.cpp": "\n" * 400,
                   "parallel/train/step/step.cpp": "\n" * 400, "parallel/train/trainer.h": "\n" * 400,
                   "parallel/train/step/replica.cpp": "\n" * 400, "nn/module.h": "\n" * 300,
                   "core/tensor.h": "\n" * 199}
        self.assertEqual(self.violations(planted), [])
        planted["core/tensor.h"] += "\n"
        self.assertIn("reading path: 2501 of 2500", "".join(self.violations(planted)))

    def test_one_name_is_one_class(self):
        def planted(text, other="nn/b.h", beside="nn/c.cpp"):
            return self.violations({other: "namespace triax::nn {\nclass Layer {\n};\n}  // namespace triax::nn\n",
                                    beside: text})

        again = "namespace triax::nn {\n{}\n}  // namespace triax::nn\n".replace("{}", "struct Layer {\n};")
        found = planted(again)
        self.assertEqual(len(found), 1, found)
        self.assertIn("nn/c.cpp:2: one-definition rule: triax::nn::Layer is also defined in nn/b.h:2", found[0])
        for head in ("class Layer : public Module {", "class Layer\n    : public Module {", "enum class Layer : int {",
                     "template <class T>\nstruct Layer {", "class [[nodiscard]] Layer final {", "struct Layer {};"):
            self.assertEqual(len(planted(again.replace("struct Layer {", head))), 1, head)
        for other in ("struct Layer;\n", "  struct Layer {", "struct Layers {", "struct Layer<int> {",
                      "namespace {\nstruct Layer {\n};\n}  // namespace\n"):
            self.assertEqual(planted(again.replace("struct Layer {", other)), [], other)
        self.assertEqual(planted(again.replace("triax::nn", "triax")), [])

    def test_programs_apart_may_use_one_name(self):
        mine, main = "struct Model {\n};\n", "int main() {\n}\n"
        self.assertEqual(self.violations({"examples/b.cpp": mine + main, "examples/c.cpp": mine + main}), [])
        self.assertEqual(self.violations({"tests/core/b.cpp": mine, "tests/nn/c.cpp": mine}), [])
        self.assertEqual(len(self.violations({"tests/core/b.cpp": mine, "tests/core/c.cpp": mine})), 1)
        self.assertEqual(len(self.violations({"examples/b.cpp": mine + main, "nn/c.h": mine})), 1)


if __name__ == "__main__":
    unittest.main()
