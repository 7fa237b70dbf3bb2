// std::chrono::duration, for options. Not part of the public API.
#pragma once

// All of <chrono> would include calendars, which cost each user's file 0.2 s of compile time.
#if __has_include(<bits/chrono.h>)  // libstdc++ since GCC 12
#include <bits/chrono.h>
#else
#include <chrono>
#endif
