// A real browser (Chromium without a window), controlled by chromedriver with the WebDriver protocol.
#pragma once

#include <gtest/gtest.h>
#include <httplib.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

#include "base/file.h"
#include "base/os/process.h"
#include "support/listener.h"
#include "support/program.h"

namespace lockstep {

class Browser {
 public:
  using Json = nlohmann::json;

  static bool is_installed() { return !find_program("chromedriver").empty() && !find_program("chromium").empty(); }

  Browser()
      : port_(unused_port()),
        driver_({find_program("chromedriver"), "--port=" + std::to_string(port_), "--silent"}),
        client_("127.0.0.1", port_) {
    client_.set_read_timeout(60);
    client_.set_keep_alive(true);
    if (!comes_true([&] { return client_.Get("/status") != nullptr; })) throw std::runtime_error("no chromedriver");
    const Json arguments = {"--headless=new",
                            "--no-sandbox",
                            "--disable-gpu",
                            "--disable-dev-shm-usage",
                            "--no-first-run",
                            "--disable-extensions",
                            "--hide-scrollbars",
                            "--disable-background-networking",
                            "--user-data-dir=" + profile_.path()};
    const Json options = {{"args", arguments}, {"binary", find_program("chromium")}};
    const Json session = post("/session", {{"capabilities", {{"alwaysMatch", {{"goog:chromeOptions", options}}}}}});
    session_ = "/session/" + session.at("sessionId").get<std::string>();
    set_width(1280);
  }
  ~Browser() { client_.Delete(session_); }
  Browser(const Browser&) = delete;
  Browser& operator=(const Browser&) = delete;

  void open(const std::string& url) { post(session_ + "/url", {{"url", url}}); }

  // The value of a JavaScript expression.
  Json value(const std::string& expression) {
    return post(session_ + "/execute/sync", {{"script", "return " + expression}, {"args", Json::array()}});
  }

  // Waits until a JavaScript expression is true.
  bool becomes_true(const std::string& expression) {
    return comes_true([&] { return value("Boolean(" + expression + ")") == true; }, std::chrono::seconds(60),
                      std::chrono::milliseconds(20));
  }

  void set_width(int width) {
    post(session_ + "/goog/cdp/execute",
         {{"cmd", "Emulation.setDeviceMetricsOverride"},
          {"params", {{"width", width}, {"height", 900}, {"deviceScaleFactor", 1}, {"mobile", false}}}});
  }
  void set_dark(bool dark) {
    const Json feature = {{"name", "prefers-color-scheme"}, {"value", dark ? "dark" : "light"}};
    post(session_ + "/goog/cdp/execute",
         {{"cmd", "Emulation.setEmulatedMedia"}, {"params", {{"features", Json::array({feature})}}}});
  }

  // Moves the mouse to (x0, y), and with the button down to (x1, y), in pixels of the page.
  void drag(int x0, int x1, int y) {
    const Json down = {{"type", "pointerDown"}, {"button", 0}}, up = {{"type", "pointerUp"}, {"button", 0}};
    act("mouse", Json::array({move(x0, y), down, move(x1, y), up}));
  }
  void hover(int x, int y) { act("mouse", Json::array({move(x, y)})); }

  void press(const std::string& key) {
    const Json down = {{"type", "keyDown"}, {"value", key}}, up = {{"type", "keyUp"}, {"value", key}};
    act("keyboard", Json::array({down, up}));
  }

  // The page as a PNG file in base64.
  std::string screenshot() { return get(session_ + "/screenshot"); }

 private:
  static Json move(int x, int y) {
    return {{"type", "pointerMove"}, {"duration", 0}, {"x", x}, {"y", y}, {"origin", "viewport"}};
  }
  void act(const std::string& device, const Json& actions) {
    const Json input = {{"type", device == "mouse" ? "pointer" : "key"}, {"id", device}, {"actions", actions}};
    post(session_ + "/actions", {{"actions", Json::array({input})}});
  }

  static Json value_of(const httplib::Result& result) {
    if (!result) throw std::runtime_error("chromedriver does not answer");
    if (result->status != 200) throw std::runtime_error(result->body);
    return Json::parse(result->body).at("value");
  }
  Json post(const std::string& path, const Json& body) {
    return value_of(client_.Post(path, body.dump(), "application/json"));
  }
  Json get(const std::string& path) { return value_of(client_.Get(path)); }

  TempDir profile_;
  int port_;
  RunningProgram driver_;
  httplib::Client client_;
  std::string session_;
};

}  // namespace lockstep
