// BoardPage: a browser, and a board with the runs "first" and "second".
#pragma once

#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>

#include "board/browser.h"
#include "board/running_board.h"

namespace lockstep {

class BoardPage : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (Browser::is_installed()) browser_ = new Browser();
  }
  static void TearDownTestSuite() {
    delete browser_;
    browser_ = nullptr;
  }
  void SetUp() override {
    if (browser_ == nullptr) GTEST_SKIP() << "no browser: install chromium and chromium-driver";
    browser_->set_width(1280);
    runs_.add("first", 100, "0.1");
    runs_.add("second", 50, "0.2");
    prepare();
    board_ = std::make_unique<RunningBoard>(runs_.path());
  }

  // Adds to the runs before the board starts.
  virtual void prepare() {}

  Browser& browser() { return *browser_; }

  // Opens the page and selects a run.
  void open(const std::string& run) {
    browser().open("about:blank");
    browser().open(board_->url);
    ASSERT_TRUE(browser().becomes_true("document.querySelectorAll('#run-list input').length >= 2"));
    browser().value("document.querySelectorAll('#run-list input:checked').forEach(box => box.click())");
    select(run);
    ASSERT_TRUE(browser().becomes_true(loss_ + ".curves === '1'"));
  }
  void select(const std::string& run) {
    browser().value(
        "[...document.querySelectorAll('#run-list li')].find(row => row.querySelector('.name').textContent === '" +
        run + "').querySelector('input').click()");
  }
  bool shows_step(int64_t step) {
    return browser().becomes_true(loss_ + ".lastStep === '" + std::to_string(step) + "'");
  }
  bool shows_range(const std::string& range) { return browser().becomes_true(loss_ + ".range === '" + range + "'"); }

  // Saves what the browser shows if LOCKSTEP_SCREENSHOTS names a folder.
  void save(const std::string& name) {
    if (const char* folder = std::getenv("LOCKSTEP_SCREENSHOTS"))
      std::ofstream(std::string(folder) + "/" + name + ".png.base64") << browser().screenshot();
  }

  const std::string loss_ = "(document.querySelector('canvas[aria-label^=\"loss \"]')?.dataset ?? {})";
  BoardRuns runs_;
  std::unique_ptr<RunningBoard> board_;

 private:
  static inline Browser* browser_ = nullptr;
};

}  // namespace lockstep
