#include <lockstep/lockstep.h>

#include <iostream>

int main() {
  lockstep::Array x = lockstep::arange(10);
  std::cout << lockstep::sum(x).item<int>() << "\n";
}
