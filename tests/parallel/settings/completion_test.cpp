#include <gtest/gtest.h>

#include "tests/parallel/settings/options.h"
#include "triax/parallel/settings/command_line.h"

namespace triax::parallel::completion_test {

using Words = std::vector<std::string>;

class Completion : public testing::Test {
 protected:
  // Without meanings, one after the other.
  std::string offered(const Words& words) const {
    std::string all;
    std::string_view text = left_ = completions(line_, words);
    for (size_t end; (end = text.find('\n')) != text.npos; text.remove_prefix(end + 1))
      all += std::string(text.substr(0, std::min(text.find('\t'), end))) + " ";
    return all;
  }

  test::Options options_;
  std::string file_;
  CommandLine line_{
      "program",
      "1.2, build 3",
      {test::verb_of(options_),
       {"shelf look", "Looks.", {}, {}, {{"A", &file_}}},
       {"shelf diff", "Compares.", only(test::settings_of(options_), {"lr"}), {}, {{"A", &file_}}},
       {"flags", "Prints.", {}}}};
  mutable std::string left_;
};

TEST_F(Completion, OfVerbs) {
  EXPECT_EQ(offered({}), "train shelf flags help ");
  EXPECT_EQ(offered({""}), "train shelf flags help ");
  EXPECT_EQ(offered({"t"}), "train ");
  EXPECT_EQ(left_, "train\tTrains a transformer on a text.\n");
  EXPECT_EQ(offered({"-"}), "--help --version ");
  EXPECT_EQ(offered({"shelf", ""}), "look diff ");
  EXPECT_EQ(offered({"help", "s"}), "shelf ");
  EXPECT_EQ(offered({"help", "shelf", "d"}), "diff ");
  EXPECT_EQ(offered({"help", "train", ""}), "");
  EXPECT_EQ(offered({"bake", ""}), "");
  EXPECT_EQ(offered({"bake", "bread", "--"}), "");
}

TEST_F(Completion, OfFlags) {
  EXPECT_EQ(offered({"train", "--l"}), "--layers --lr ");
  EXPECT_EQ(left_, "--layers\ttransformer blocks\n--lr\tpeak learning rate\n");
  EXPECT_EQ(offered({"train", "--lr", "1", "--gr"}), "--graph ");
  EXPECT_EQ(offered({"train", "--lr", "--gr"}), "--graph ") << "a value does not begin so";
  EXPECT_EQ(offered({"flags", ""}), "--help ");
  EXPECT_EQ(offered({"train", "--x"}), "");
}

TEST_F(Completion, OfValues) {
  EXPECT_EQ(offered({"train", "--precision", ""}), "fp32 bf16 ");
  EXPECT_EQ(offered({"train", "--comm", "m"}), "mpi ");
  EXPECT_EQ(offered({"train", "--graph", "--precision", "b"}), "bf16 ");
  EXPECT_EQ(offered({"train", "--precision=b"}), "--precision=bf16 ");
  for (const Words& words :
       {Words{"train", "--precision", "=", "b"}, {"train", "--precision", "="}})
    EXPECT_NE(offered(words).find("bf16 "), std::string::npos) << "as bash cuts --precision=b";
  EXPECT_EQ(offered({"train", "--layers", ""}), "") << "a number";
  EXPECT_EQ(offered({"train", "--nothing=", ""}).find("fp32"), std::string::npos);
}

TEST_F(Completion, OfFiles) {
  EXPECT_EQ(offered({"train", "--out", "r"}), "<files> ");
  EXPECT_EQ(offered({"train", "--config", ""}), "<files> ");
  EXPECT_EQ(offered({"shelf", "look", "x"}), "<files> ");
  EXPECT_EQ(offered({"shelf", "diff", "x", "--l"}), "--lr ");
  Setting resume{{}, "resume", "", "Run", "auto|last-good|PATH", "continue", &file_};
  line_.verbs[3].settings = {resume};
  EXPECT_EQ(offered({"flags", "--resume", ""}), "auto last-good <files> ");
  EXPECT_EQ(offered({"flags", "--resume", "l"}), "last-good <files> ");
}

TEST(ManPage, HasEveryFlagAndEscapesText) {
  test::Options o;
  o.text = ".so \\f\"";
  CommandLine line{"program", "triax 1.2, build 3", {test::verb_of(o)}};
  std::string page = man_page(line) + man_page(line.program, line.verbs[0]);
  EXPECT_EQ(page.find(".TH \"PROGRAM\" 1 \"\" \"triax 1.2\"\n"
                      ".SH NAME\nprogram \\- Trains a transformer on a text.\n"),
            0u)
      << page;
  for (const Setting& s : line.verbs[0].settings)
    EXPECT_NE(page.find(".TP\n\\fB\\-\\-" + s.name + "\\fR"), page.npos) << s.name;
  EXPECT_NE(page.find("\ntext to continue (default: .so \\ef\\(dq)\n"), page.npos) << page;
  EXPECT_NE(page.find(".SS \"Mesh\"\n.TP\n\\fB\\-\\-dp\\fR \\fIN\\fR\ndata\\-parallel replicas"),
            page.npos)
      << page;
  EXPECT_NE(page.find("\nprogram train \\-\\-layers 2 "), page.npos) << page;
  line.verbs[0].what = ".so is no request here";
  EXPECT_NE(man_page("program", line.verbs[0]).find("\n\\&.so is"), page.npos);
}

}  // namespace triax::parallel::completion_test
