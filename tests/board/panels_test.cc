// What the page of `lockstep board` shows of a run besides its curves, in a real browser.
#include <filesystem>

#include "board/page.h"
#include "board/stored_files.h"
#include "support/text.h"

namespace lockstep {
namespace {

class Panels : public BoardPage {
 protected:
  void prepare() override { store_files(folder()); }
  std::string folder() const { return runs_.path() + "/first"; }

  // Opens a tab of the run "first".
  void open_tab(const std::string& tab) {
    open("first");
    browser().value("document.getElementById('tab-of-" + tab + "').click()");
    ASSERT_TRUE(browser().becomes_true("document.querySelector('#panel-" + tab + " > :is(h2, p)')"));
  }
  std::string text(const std::string& selector) {
    return browser().value("document.querySelector(\"" + selector + "\")?.textContent ?? ''");
  }
  bool shows(const std::string& selector, const std::string& words) {
    const bool shown =
        browser().becomes_true("document.querySelector(\"" + selector + "\")?.textContent.includes(\"" + words + "\")");
    EXPECT_TRUE(shown) << selector << ": " << text(selector);
    return shown;
  }
  void press_all(std::initializer_list<const char*> keys) {
    for (const char* key : keys) browser().press(key);
  }
  // Everything fits on a narrow screen, light and dark.
  void expect_fits(const std::string& name) {
    save(name);
    browser().set_width(390);
    browser().set_dark(true);
    EXPECT_TRUE(browser().becomes_true("document.documentElement.scrollWidth <= 390")) << name;
    save(name + "-narrow-dark");
    browser().set_dark(false);
    browser().set_width(1280);
  }
  static constexpr const char *kRight = "\xEE\x80\x94", *kDown = "\xEE\x80\x95", *kHome = "\xEE\x80\x91";
};

TEST_F(Panels, TabsAreChosenByKeys) {
  open("first");
  EXPECT_EQ(browser().value("document.querySelectorAll('[role=tab]').length"), 5);
  press_all({"4"});
  EXPECT_TRUE(shows("[role=tab][aria-selected=true]", "Mesh"));
  browser().value("document.getElementById('tab-of-mesh').focus()");
  press_all({kRight});
  EXPECT_TRUE(shows("[role=tab][aria-selected=true]", "Timeline"));
  press_all({kRight});
  EXPECT_TRUE(shows("[role=tab][aria-selected=true]", "Curves"));
  EXPECT_EQ(browser().value("document.querySelectorAll('[role=tabpanel]:not([hidden])').length"), 1);
  EXPECT_EQ(browser().value("document.activeElement.id"), "tab-of-curves");
  browser().value("document.getElementById('tab-of-samples').click()");
  EXPECT_EQ(browser().value("new URLSearchParams(location.hash.slice(1)).get('show')"), "samples");
  browser().value("location.reload()");  // the address restores the run and its tab
  EXPECT_TRUE(shows(".sample pre", "Call me Ishmael"));
}

TEST_F(Panels, ConfusionMatricesAreTables) {
  open_tab("evaluation");
  EXPECT_EQ(text("#panel-evaluation h2"), "Test set of pets, 10 examples, step 100: accuracy 80 %, loss 0.5");
  EXPECT_EQ(text(".confusion tr:last-child"), "dog13");
  const auto color = [&](const char* cell) {
    return browser().value(std::string("getComputedStyle(document.querySelector('") + cell + "')).backgroundColor");
  };
  EXPECT_NE(color("[data-row=\"0\"][data-column=\"0\"]"), color("[data-row=\"0\"][data-column=\"1\"]"));
  browser().value("document.querySelector('.confusion').focus()");
  press_all({kDown, kRight});
  EXPECT_TRUE(shows("#panel-evaluation output", "label cat, predicted dog: 1 example, 16.67 % of this label"));
  EXPECT_TRUE(browser().becomes_true("document.querySelector('.worst').naturalWidth === 6"));
  EXPECT_TRUE(shows("#panel-evaluation", "#7catdog90 %"));
  expect_fits("predictions");
}

TEST_F(Panels, NewResultsAppear) {
  open_tab("evaluation");
  std::string later = kStoredEvaluation;
  later.replace(later.find("\"step\":100"), 10, "\"step\":200");
  FileSystem::real().write(folder() + "/evaluation/report.json", text_bytes(later));
  EXPECT_TRUE(shows("#panel-evaluation h2", "step 200"));
}

TEST_F(Panels, DamagedEvaluationsAreNamed) {
  FileSystem::real().write(folder() + "/evaluation/report.json", text_bytes("{\"classes\":[]"));
  open_tab("evaluation");
  EXPECT_TRUE(shows("#panel-evaluation [role=alert]", "first: evaluation/report.json"));
  EXPECT_TRUE(shows("#panel-evaluation [role=alert]", "`lockstep eval RUN` writes it"));
}

TEST_F(Panels, TruncatedPicturesAreNamed) {
  std::filesystem::resize_file(folder() + "/evaluation/worst.png", 30);
  open_tab("evaluation");
  EXPECT_TRUE(shows("#panel-evaluation [role=alert]", "evaluation/worst.png has 30 bytes and is not a complete PNG"));
  EXPECT_TRUE(shows(".confusion", "cat"));
}

TEST_F(Panels, TextsAreListedByStep) {
  open_tab("samples");
  EXPECT_EQ(text(".sample h3"), "Step 100");
  EXPECT_EQ(text(".sample pre"), "Call me Ishmael");
  EXPECT_EQ(text(".sample:nth-of-type(2) pre"), "Call me <b>");
  FileSystem::real().append(folder() + "/samples.jsonl", text_bytes("{\"step\":150,\"text\":\"new\"}\n{damaged\n"));
  EXPECT_TRUE(shows(".sample h3", "Step 150"));
  EXPECT_TRUE(shows("#panel-samples", "1 damaged line of samples.jsonl skipped"));
  expect_fits("texts");
}

TEST_F(Panels, DevicesShowTheirParts) {
  open_tab("mesh");
  EXPECT_EQ(text("#panel-mesh h2"), "Mesh: data 2, model 2; 4 cpu devices, 2 processes, ZeRO stage 1");
  EXPECT_TRUE(
      shows("#panel-mesh p", "dense/w: f32[5, 8], P('data', 'model'): 4 different parts, at most 48 B on a device"));
  EXPECT_EQ(text(".mesh tr:nth-child(2) td:nth-child(2)"), "device 0process 0[0:3, 0:4]");
  EXPECT_EQ(text(".mesh tr:nth-child(3) td:nth-child(3)"), "device 3process 1[3:5, 4:8]");
  const auto border = [&](int row) {
    return browser().value("getComputedStyle(document.querySelector('.mesh tr:nth-child(" + std::to_string(row) +
                           ") td:nth-child(2)')).borderTopColor");
  };
  EXPECT_NE(border(2), border(3));
  browser().value(
      "(select => { select.value = 'state'; select.dispatchEvent(new Event('change')); })"
      "(document.querySelector('#panel-mesh select'))");
  EXPECT_TRUE(shows("#panel-mesh p", "optimizer state of dense/w: f32[5, 8], P(('data', 'model'), None)"));
  EXPECT_EQ(text(".mesh tr:nth-child(2) td:nth-child(2)"), "device 0process 0[0:2, 0:8]");
  browser().value("document.querySelector('#panel-mesh [role=listbox]').focus()");
  press_all({kDown, " "});
  EXPECT_TRUE(shows("#panel-mesh p", "dense/b is not trained: it has no optimizer state"));
  expect_fits("mesh");
}

TEST_F(Panels, TimelinesNameTheSlowestRank) {
  open_tab("trace");
  EXPECT_EQ(text("#panel-trace h2"), "Rank 1 was the slowest in 3 of 3 steps, mostly in data.");
  const std::string data = "document.querySelector('.timeline').dataset";
  ASSERT_TRUE(browser().becomes_true(data + ".slices === '24'"));
  EXPECT_TRUE(shows("#panel-trace table:last-of-type", "rank 1"));
  EXPECT_TRUE(shows("#panel-trace > .wide:last-of-type", "step 510 msrank 17 ms5 msdata (+2 ms)"));
  browser().value("document.querySelector('button[aria-label=\"Zoom to step 6\"]').click()");
  EXPECT_TRUE(browser().becomes_true("Number(" + data + ".range.split(' ')[0]) > 0.009"));
  press_all({kDown});
  EXPECT_TRUE(shows("#panel-trace .values", "step 6 (step)"));
  press_all({kDown});
  EXPECT_TRUE(shows("#panel-trace .values", "next batch (data)"));
  press_all({"."});
  EXPECT_TRUE(
      browser().becomes_true("document.querySelector('#panel-trace .values').textContent.includes('from 20 ms')"));
  press_all({kHome});
  EXPECT_TRUE(browser().becomes_true(data + ".range.startsWith('0 ')"));
  expect_fits("timeline");
}

TEST_F(Panels, TimelinesZoomWithThePointer) {
  open_tab("trace");
  const std::string data = "document.querySelector('.timeline').dataset";
  ASSERT_TRUE(browser().becomes_true(data + ".slices === '24'"));
  browser().value("document.querySelector('button[aria-label=\"Zoom in\"]').click()");
  EXPECT_TRUE(browser().becomes_true("Number(" + data + ".range.split(' ')[0]) > 0.007"));
  const auto bounds = browser().value("document.querySelector('.timeline').getBoundingClientRect().toJSON()");
  const int left = bounds.at("left").get<int>(), top = bounds.at("top").get<int>();
  browser().drag(left + 300, left + 500, top + 60);  // to earlier times
  EXPECT_TRUE(browser().becomes_true("Number(" + data + ".range.split(' ')[0]) < 0.006"));
  browser().hover(left + 300, top + 30);
  EXPECT_TRUE(shows("#panel-trace .values", "rank 0, lane 0: step"));
}

TEST_F(Panels, DamagedTracesAreNamedAndTheOthersShown) {
  std::filesystem::resize_file(folder() + "/trace/rank_1.json", uint64_t{200} << 20);
  open_tab("trace");
  EXPECT_TRUE(shows("#panel-trace .problem",
                    "trace/rank_1.json has 200 MB, but the board reads at most 64 MB of a rank; trace fewer steps"));
  EXPECT_TRUE(shows("#panel-trace h2", "Only one rank has traced steps"));
  EXPECT_TRUE(browser().becomes_true("document.querySelector('.timeline').dataset.slices === '12'"));
}

TEST_F(Panels, MissingFilesAreExplained) {
  std::filesystem::remove_all(folder() + "/evaluation");
  for (const char* name : {"mesh.json", "samples.jsonl", "trace/rank_0.json", "trace/rank_1.json"})
    std::filesystem::remove(folder() + "/" + name);
  for (const auto& [tab, words] : {std::pair{"evaluation", "first has no results of a classifier yet"},
                                   {"samples", "first has no texts"},
                                   {"mesh", "first has no mesh.json"},
                                   {"trace", "first has no trace"}}) {
    open_tab(tab);
    EXPECT_TRUE(shows("#panel-" + std::string(tab), words));
  }
}

TEST_F(Panels, ADeletedRunIsReportedInItsPanel) {
  open_tab("mesh");
  std::filesystem::remove_all(folder());
  EXPECT_TRUE(browser().becomes_true("document.getElementById('message').textContent.includes('no longer exists')"));
  EXPECT_TRUE(shows("#panel-mesh", "Select a run."));
}

TEST_F(Panels, AnyOfSeveralRunsIsShown) {
  open_tab("mesh");
  select("second");
  EXPECT_TRUE(browser().becomes_true("document.querySelectorAll('#panel-run option').length === 2"));
  EXPECT_TRUE(shows("#panel-mesh", "4 cpu devices"));
  browser().value(
      "(select => { select.selectedIndex = 1; select.dispatchEvent(new Event('change')); })"
      "(document.getElementById('panel-run'))");
  EXPECT_TRUE(shows("#panel-mesh", "second has no mesh.json"));
}

TEST_F(Panels, GroupsOfMetricsAreShownTogether) {
  runs_.append("first",
               "{\"kind\":\"step\",\"step\":101,\"time\":1800000101,\"loss\":1,\"grad_norm\":2,\"step_seconds\":0.25,"
               "\"mfu\":0.4,\"memory/lane0\":1000000}\n");
  open("first");
  ASSERT_TRUE(shows("#tag-count", "8"));
  const auto group = [](const char* name) {
    return "[...document.querySelectorAll('#groups button')].find(each => each.textContent === '" + std::string(name) +
           "')";
  };
  browser().value(group("Speed and memory") + ".click()");
  browser().value(group("Gradient norms") + ".click()");
  EXPECT_TRUE(browser().becomes_true(group("Speed and memory") + ".ariaPressed === 'true'"));
  for (const char* tag : {"steps_per_second", "mfu", "memory/lane0", "step_seconds", "grad_norm"})
    EXPECT_TRUE(browser().becomes_true("document.querySelector('.group:not([hidden]) canvas[aria-label^=\"" +
                                       std::string(tag) + " \"]')?.dataset.curves === '1'"))
        << tag;
  EXPECT_TRUE(browser().becomes_true(
      "document.querySelector('canvas[aria-label^=\"steps_per_second \"]').ariaLabel.endsWith('first 4')"));
  EXPECT_EQ(browser().value("[...document.querySelectorAll('.group:not([hidden]) h2')].map(each => each.textContent)"),
            (nlohmann::json{"Loss and accuracy", "Speed and memory", "Gradient norms"}));
  save("groups");
  browser().value(group("Speed and memory") + ".click()");
  EXPECT_TRUE(browser().becomes_true("!document.querySelector('canvas[aria-label^=\"mfu \"]')"));
}

}  // namespace
}  // namespace lockstep
