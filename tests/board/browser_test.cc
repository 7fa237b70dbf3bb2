// The page of `lockstep board`, and the report of `lockstep plot`, in a real browser.
#include <filesystem>

#include "board/page.h"
#include "support/text.h"

namespace lockstep {
namespace {

class Page : public BoardPage {};

TEST_F(Page, DrawsTheCurvesOfARun) {
  open("first");
  EXPECT_TRUE(shows_step(100));
  EXPECT_EQ(browser().value("document.getElementById('status').textContent"), "live");
  EXPECT_EQ(browser().value("location.search"), "");  // the token is not in the address
  expect_contains(browser().value("document.getElementById('details').textContent"), "100 of 1000");
  save("run");
}

TEST_F(Page, TheNewestRunIsShownAtFirst) {
  browser().open("about:blank");
  browser().open(board_->url);
  EXPECT_TRUE(browser().becomes_true(loss_ + ".curves === '1'"));
  EXPECT_EQ(browser().value("document.querySelectorAll('#run-list input:checked').length"), 1);
}

TEST_F(Page, NewPointsArrive) {
  open("first");
  ASSERT_TRUE(shows_step(100));
  runs_.add_steps("first", 101, 120);
  EXPECT_TRUE(shows_step(120));
  runs_.append(
      "first",
      "{\"kind\":\"message\",\"step\":120,\"time\":1800000120,\"alarm\":true,\"text\":\"loss is <b>nan</b>\"}\n");
  EXPECT_TRUE(browser().becomes_true(
      "document.querySelector('#details .alarm')?.textContent === 'first, step 120: loss is <b>nan</b>'"));
}

TEST_F(Page, DraggingZoomsAndKeysReset) {
  open("first");
  ASSERT_TRUE(shows_range("1 100"));
  const auto bounds = browser().value("document.querySelector('canvas').getBoundingClientRect().toJSON()");
  const int left = bounds.at("left").get<int>(), top = bounds.at("top").get<int>(),
            width = bounds.at("width").get<int>();
  browser().drag(left + width / 3, left + 2 * width / 3, top + 100);
  EXPECT_TRUE(browser().becomes_true("Number(" + loss_ + ".range.split(' ')[0]) > 20 && Number(" + loss_ +
                                     ".range.split(' ')[1]) < 80"));
  browser().hover(left + width / 2, top + 50);
  EXPECT_TRUE(browser().becomes_true("document.querySelector('.values').textContent.startsWith('first  step ')"));
  browser().press("r");
  EXPECT_TRUE(shows_range("1 100"));
  browser().press("l");
  EXPECT_EQ(browser().value("document.getElementById('log').checked"), true);
  browser().press("x");
  EXPECT_TRUE(
      browser().becomes_true("document.querySelector('canvas').getAttribute('aria-label').includes(' by time')"));
  browser().press("/");
  EXPECT_EQ(browser().value("document.activeElement.id"), "search");
}

TEST_F(Page, RunsAreCompared) {
  open("first");
  select("second");
  EXPECT_TRUE(browser().becomes_true(loss_ + ".curves === '2'"));
  EXPECT_TRUE(browser().becomes_true("document.getElementById('details').textContent.includes('learning_rate0.10.2')"));
  save("compare");
  browser().set_dark(true);
  browser().hover(5, 5);
  save("compare-dark");
  browser().set_dark(false);
}

TEST_F(Page, RefusesAWrongToken) {
  browser().open("about:blank");
  browser().open("http://localhost:" + std::to_string(board_->port) + "/?token=wrong");
  expect_contains(browser().value("document.body.textContent"), "wrong or missing token");
}

TEST_F(Page, FitsANarrowScreen) {
  browser().set_width(390);
  open("first");
  ASSERT_TRUE(shows_step(100));
  EXPECT_LE(browser().value("document.documentElement.scrollWidth").get<int>(), 390);
  EXPECT_LE(browser().value("document.querySelector('canvas').getBoundingClientRect().right").get<double>(), 390);
  save("narrow");
}

TEST_F(Page, TwelveThousandMetricsStayFluid) {
  std::string scalars;
  for (int i = 0; i < 12'000; ++i) scalars += fmt::format(",\"layer{}/norm\":{}", i, i);
  runs_.append("first", "{\"kind\":\"step\",\"step\":101,\"time\":1800000101,\"loss\":1" + scalars + "}\n");
  open("first");
  EXPECT_TRUE(browser().becomes_true("document.getElementById('tag-count').textContent === '12003'"));
  browser().press("m");
  EXPECT_TRUE(browser().becomes_true("document.querySelectorAll('#tag-list .tag').length > 5"));
  EXPECT_LT(browser().value("document.querySelectorAll('#tag-list .tag').length").get<int>(), 50);
  for (const char* key : {"1", "1", "9", "9", "7"}) browser().press(key);
  EXPECT_TRUE(browser().becomes_true("document.querySelectorAll('#tag-list .tag').length === 1"));
  browser().value("document.querySelector('#tag-list .tag').click()");
  EXPECT_TRUE(browser().becomes_true(
      "document.querySelector('canvas[aria-label^=\"layer11997/norm \"]')?.dataset.curves === '1'"));
}

TEST_F(Page, ADeletedRunIsReported) {
  open("first");
  std::filesystem::remove_all(runs_.path() + "/first");
  EXPECT_TRUE(browser().becomes_true("document.getElementById('message').textContent.includes('no longer exists')"));
}

TEST_F(Page, JobsAreShown) {
  open("first");
  browser().value("document.getElementById('show-jobs').click()");
  EXPECT_TRUE(browser().becomes_true("document.getElementById('jobs').textContent !== ''"));
}

TEST_F(Page, ReportsOfPlotShowValuesUnderThePointer) {
  const TempDir dir;
  const std::string file = dir.path() + "/report.html";
  const ProcessResult plotted = run_lockstep({"plot", runs_.path() + "/first", runs_.path() + "/second", "-o", file});
  ASSERT_EQ(plotted.exit_code, 0) << plotted.output;
  browser().open("file://" + file);
  EXPECT_EQ(browser().value("document.querySelectorAll('figure').length"), 3);
  const auto bounds = browser().value("document.querySelector('figure svg').getBoundingClientRect().toJSON()");
  browser().hover(bounds.at("left").get<int>() + bounds.at("width").get<int>() / 2, bounds.at("top").get<int>() + 80);
  EXPECT_TRUE(browser().becomes_true("document.querySelector('figure output').textContent.startsWith('first  step ')"));
  EXPECT_LE(browser().value("document.documentElement.scrollWidth").get<int>(), 1280);
  save("report");
}

}  // namespace
}  // namespace lockstep
