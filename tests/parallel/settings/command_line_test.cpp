#include "triax/parallel/settings/command_line.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/parallel/settings/options.h"
#include "tests/support/expect_error.h"
#include "triax/parallel/settings/terminal.h"

namespace triax::parallel::command_line_test {

using namespace test;
using Words = std::vector<std::string>;

std::string refused(const Words& words) {
  return error_of([&] { read(words); }, Exit::usage);
}

// The longest line, in characters.
int widest(const std::string& text) {
  int most = 0, now = 0;
  for (char c : text) {
    now = c == '\n' ? 0 : now + ((c & 0xC0) != 0x80);
    most = std::max(most, now);
  }
  return most;
}

TEST(CommandLine, TheLastOfEqualFlagsWins) {
  Options o = read({"--lr", "0.25", "--layers=7", "--text", "a", "--lr=0.5", "--text", "b",
                    "--layers", "5", "--layers=3"});
  EXPECT_EQ(o.lr, 0.5);
  EXPECT_EQ(o.layers, 3);
  EXPECT_EQ(o.text, "b");
  // What was overruled is not even looked at.
  EXPECT_EQ(read({"--layers=x", "--layers", "2"}).layers, 2);
}

TEST(CommandLine, TakesTextsAsTheyAre) {
  for (const char* text : {"", " ", "a b", "[1,2]", "{}", "\"q\"", "-1", "-x", "--y", "a=b", "é\n"})
    EXPECT_EQ(read({std::string("--text=") + text}).text, text);
  for (const char* text : {"", " ", "-", "-1", "a=b"})
    EXPECT_EQ(read({"--text", text, "--layers", "2"}).text, text);
}

TEST(CommandLine, APathIsNotEmpty) {
  EXPECT_EQ(refused({"--out", ""}), "--out is empty; expected DIR");
  EXPECT_EQ(refused({"--config="}), "--config is empty; expected FILE");
  EXPECT_EQ(read({"--out", "", "--out", "a"}).out, "a");
}

TEST(CommandLine, MessagesNameTheFlagsOfTheirPaths) {
  Options o;
  Verb verb = verb_of(o);
  auto named = [&](const std::string& message, const std::string& out) {
    Words words{"--out", out, "--text", "open"};
    return paths_named(message, parse("program", verb, words));
  };
  for (const char* message : {"files: open runs/a: No such file", "checkpoint runs/a: none",
                              "files: open runs/a/b: No such file", "hardware `runs/a`: no"})
    EXPECT_EQ(named(message, "runs/a"), "\n  This is --out runs/a.") << message;
  for (const char* message : {"files: open runs/ab: No such file", "files: open my-runs/a: No",
                              "overlay: out=runs/a is missing", "runs/a: it is missing"})
    EXPECT_EQ(named(message, "runs/a"), "") << message;
  EXPECT_EQ(named("checkpoint nowhere: no such directory", "checkpoint"), "");
}

TEST(CommandLine, SwitchesNeedNoValue) {
  EXPECT_FALSE(read({}).graph);
  EXPECT_TRUE(read({"--graph", "--seed", "3"}).graph);
  EXPECT_TRUE(read({"--graph=true"}).graph);
  EXPECT_FALSE(read({"--graph", "--graph=false"}).graph);
  EXPECT_FALSE(read({"--graph", "--graph", "false", "--seed", "3"}).graph);
}

TEST(CommandLine, SomeFlagsMayStandAlone) {
  EXPECT_EQ(read({}).profile, "");
  EXPECT_EQ(read({"--profile"}).profile, "3-5");
  EXPECT_EQ(read({"--profile", "--seed", "3"}).profile, "3-5");
  EXPECT_EQ(read({"--profile", "7", "--seed", "3"}).profile, "7");
  EXPECT_EQ(read({"--profile=7-9"}).profile, "7-9");
  EXPECT_EQ(read({"--profile="}).profile, "");
}

TEST(CommandLine, TakesAllWordsWhereAVerbAsksForThem) {
  Options o;
  std::vector<std::string> files{"old"};
  Verb verb = verb_of(o);
  verb.operands = {{.name = "FILE..", .all = &files}};
  EXPECT_TRUE(parse("program", verb, Words{"a", "--layers", "3", "b", "--graph", "c"}).verb);
  EXPECT_EQ(files, (Words{"a", "b", "c"}));
  EXPECT_EQ(o.layers, 3);
  EXPECT_TRUE(o.graph);
  EXPECT_EQ(error_of([&] { parse("program", verb, Words{}); }, Exit::usage),
            "program train: FILE.. is not given; expected program train FILE.. [-h] [FLAGS]");
  EXPECT_EQ(error_of([&] { parse("program", verb, Words{"a\xFF"}); }, Exit::usage),
            "program train: `a\xFF`; expected UTF-8 text");
  EXPECT_TRUE(says(help("program", verb, 80), "Usage: program train FILE.. [-h] [FLAGS]"));
  EXPECT_EQ(refused({"a"}), "program train: `a` is no flag; flags are written --name VALUE");
}

TEST(CommandLine, HelpAssignsNothing) {
  Options o;
  EXPECT_FALSE(parse("program", verb_of(o), Words{"--layers", "3", "--help"}).verb);
  EXPECT_FALSE(parse("program", verb_of(o), Words{"-h", "--nonsense"}).verb);
  EXPECT_EQ(o.layers, 4);
}

TEST(CommandLine, SaysWhichFlagWasMeant) {
  EXPECT_EQ(refused({"--layer", "3"}),
            "program train: unknown flag --layer; the nearest is --layers");
  EXPECT_EQ(refused({"-layers", "3"}),
            "program train: unknown flag -layers; the nearest is --layers");
  EXPECT_EQ(refused({"--learning_rate=3"}),
            "program train: unknown flag --learning_rate; use --lr");
  EXPECT_EQ(refused({"--momentum=0.9"}),
            "program train: unknown flag --momentum; `program train --help` lists all flags");
  EXPECT_EQ(refused({"7"}), "program train: `7` is no flag; flags are written --name VALUE");
  EXPECT_EQ(refused({"--seed", "1", "--lr"}),
            "program train: --lr has no value; flags are written --name VALUE, or --name=VALUE "
            "where the value begins with a dash");
  EXPECT_EQ(refused({"--lr", "--seed", "1"}).substr(0, 33), "program train: --lr has no value;");
}

TEST(CommandLine, FindsTheVerb) {
  Options train, sample;
  CommandLine line{
      "program",
      "1.2",
      {verb_of(train),
       {.name = "sample", .what = "Continues a text.", .settings = {}, .elsewhere = "generate"}}};
  Request request = parse(line, Words{"train", "--layers", "2"}, 80);
  ASSERT_EQ(request.verb, &line.verbs[0]);
  EXPECT_EQ(train.layers, 2);
  for (const char* word : {"--version", "-v", "-V"})
    EXPECT_EQ(parse(line, Words{word}, 80).text, "program 1.2\n");
  EXPECT_EQ(parse(line, {}, 80).code, Exit::usage);
  EXPECT_EQ(parse(line, {}, 80).text, help(line, 80));
  for (const char* word : {"help", "--help", "-h"})
    EXPECT_EQ(parse(line, Words{word}, 80).text, help(line, 80));
  std::string page = help("program", line.verbs[0], 80);
  for (const Words& words : {Words{"help", "train"}, {"train", "-h"}, {"train", "--help"}}) {
    EXPECT_EQ(parse(line, words, 80).text, page);
    EXPECT_EQ(parse(line, words, 80).verb, nullptr);
  }
  auto refused_verb = [&](const char* verb) {
    return error_of([&] { parse(line, Words{verb}, 80); }, Exit::usage);
  };
  EXPECT_EQ(refused_verb("tran"), "program: unknown verb tran; the nearest is train");
  EXPECT_EQ(refused_verb("generate"), "program: unknown verb generate; use sample");
  EXPECT_EQ(refused_verb("bake"), "program: unknown verb bake; `program --help` lists all verbs");
  EXPECT_EQ(refused_verb("report"), "program: unknown verb report; it is `triax-report RUN..` now");
}

TEST(CommandLine, NamesTheFlagsThatWereGiven) {
  Options o;
  CommandLine line{"program", "1.2", {verb_of(o)}};
  Request request = parse(line, Words{"train", "--lr=2", "--layers", "3", "--lr", "1"}, 80);
  std::sort(request.given.begin(), request.given.end());
  EXPECT_EQ(request.given, (Words{"layers", "lr"}));
}

TEST(CommandLine, VerbsOfTwoWordsWithOperands) {
  Options o;
  std::string a, b;
  Verb diff{"shelf diff", "Compares.", only(settings_of(o), {"lr"}), {}, {{"A", &a}, {"B", &b}}};
  CommandLine line{
      "program", "1", {verb_of(o), diff, {"shelf look", "Looks.", {}, {}, {{"A", &a}}}}};
  EXPECT_EQ(parse(line, Words{"shelf", "diff", "x", "--lr", "3", "y"}, 80).verb, &line.verbs[1]);
  EXPECT_EQ(a + b, "xy");
  EXPECT_EQ(o.lr, 3);
  line.verbs.insert(line.verbs.begin(), {"shelf", "Lists.", {}});
  EXPECT_EQ(parse(line, Words{"shelf"}, 80).verb, &line.verbs[0]);
  EXPECT_EQ(parse(line, Words{"shelf", "look", "z"}, 80).verb, &line.verbs[3]) << "the longest";
  line.verbs.erase(line.verbs.begin());
  auto refuses = [&](const Words& words) {
    return error_of([&] { parse(line, words, 80); }, Exit::usage);
  };
  EXPECT_EQ(refuses({"shelf"}), "program shelf: expected one of: diff, look");
  EXPECT_EQ(refuses({"shelf", "dif"}),
            "program shelf: unknown verb dif; the nearest is diff; expected one of: diff, look");
  EXPECT_EQ(refuses({"shelf", "diff", "x"}),
            "program shelf diff: B is not given; expected program shelf diff A B [-h] [FLAGS]");
  EXPECT_EQ(refuses({"shelf", "look", "x", "y"}),
            "program shelf look: `y` is no flag; flags are written --name VALUE");
  std::string page = parse(line, Words{"help", "shelf", "look"}, 80).text;
  EXPECT_EQ(page.find("Usage: program shelf look A [-h]\n"), 0u) << page;
  EXPECT_TRUE(says(markdown("program", diff), "\n`program shelf diff A B [-h] [FLAGS]`\n"));
}

TEST(CommandLine, EveryFlagIsDocumented) {
  Options o;
  Verb verb = verb_of(o);
  std::string text = help("program", verb, 100), page = markdown("program", verb);
  for (const Setting& s : verb.settings) {
    std::string shown = is_switch(s) ? s.name : s.name + " " + s.value;
    EXPECT_TRUE(says(text, "  --" + shown)) << s.name;
    EXPECT_TRUE(says(text, "\n" + s.group + ":\n")) << s.group;
    EXPECT_TRUE(says(page, "| `--" + s.name + (is_switch(s) ? "`" : " "))) << s.name;
  }
  EXPECT_TRUE(says(text, "transformer blocks (default: 4)"));
  EXPECT_EQ(text.find("Usage: program train [-h] [FLAGS]\n"), 0u);
  EXPECT_TRUE(says(page, "| `--comm auto\\|mpi\\|threads` | how ranks communicate | auto |"));
}

TEST(CommandLine, HelpKeepsToTheTerminal) {
  Options o;
  o.text = std::string(70, 'x');
  CommandLine line{"program", "1", {verb_of(o)}};
  for (int columns : {40, 60, 80, 120}) {
    EXPECT_LE(widest(help("program", line.verbs[0], columns)), columns);
    EXPECT_LE(widest(help(line, columns)), columns);
  }
  std::string narrow = help("program", line.verbs[0], 60);
  EXPECT_TRUE(says(narrow,
                   "\n  --graph               capture the step as a CUDA graph and\n"
                   "                        replay it (default: false)\n"));
  EXPECT_TRUE(says(narrow,
                   "\n  --comm auto|mpi|threads\n"
                   "                        how ranks communicate\n"
                   "                        (default: auto)\n"));
  // A shell takes the example back.
  EXPECT_TRUE(
      says(narrow, "    program train --layers 2 --lr 0.01 --precision bf16 \\\n      --comm"));
}

TEST(Terminal, WrapsAtWordsAndCutsLongOnes) {
  EXPECT_EQ(wrapped("", 10), "");
  EXPECT_EQ(wrapped("one two  three\nfour", 9), "one two\nthree\nfour");
  EXPECT_EQ(wrapped("one two three", 9, 4), "one\n    two\n    three");
  EXPECT_EQ(wrapped("a bcdefgh i", 3), "a\nbcd\nefg\nh i");
  EXPECT_EQ(wrapped("äöü äöü äöü", 7), "äöü äöü\näöü");
  EXPECT_EQ(wrapped("äöüä", 3), "äöü\nä");
  EXPECT_EQ(wrapped("one two\tthree", 9), "one\ntwo three");
  EXPECT_EQ(folded("", 9), "");
  EXPECT_EQ(folded("a  b\n\n c d\n", 9), "a  b\n\n c d\n");
  EXPECT_EQ(folded("  one  two  three four\nfive\n", 11),
            "  one  two\n    three\n    four\nfive\n");
  EXPECT_EQ(folded("one two-hundred /and/a/path x\n", 9),
            "one\n  two-hundred\n  /and/a/path\n  x\n");
}

TEST(Terminal, QuotesWhatAShellWouldRead) {
  EXPECT_EQ(shell_word("runs/a-1_b.c,d=e:f@g%h+"), "runs/a-1_b.c,d=e:f@g%h+");
  EXPECT_EQ(shell_word(""), "''");
  EXPECT_EQ(shell_word("a b"), "'a b'");
  EXPECT_EQ(shell_word("it's $x"), "'it'\\''s $x'");
  EXPECT_EQ(shell_word("~/runs/ä"), "'~/runs/ä'");
}

TEST(Terminal, ColumnsComeFromTheEnvironmentFirst) {
  setenv("COLUMNS", "61", 1);
  EXPECT_EQ(terminal_columns(-1), 61);
  for (const char* text : {"wide", "-3", "0"}) {
    setenv("COLUMNS", text, 1);
    EXPECT_EQ(terminal_columns(-1), 80) << text;  // no terminal either
  }
  unsetenv("COLUMNS");
  EXPECT_EQ(terminal_columns(-1), 80);
  EXPECT_EQ(terminal_columns(-1, 7), 7);
}

}  // namespace triax::parallel::command_line_test
