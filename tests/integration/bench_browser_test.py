"""`dtorch bench --html`: the page as a browser shows it, light and dark, on a desk and on a phone."""
import pathlib

from browser import Browser, chromium
from dtorch_testing import DTORCH, DtorchTest, main, run

WHITE, NIGHT, BLUE, LIGHT_BLUE = (255, 255, 255), (13, 17, 23), (9, 105, 218), (88, 166, 255)


class BenchPage(DtorchTest):
    def setUp(self):
        self.path = pathlib.Path(self.new_folder(), "page.html")
        result = run([DTORCH, "bench", "all", "-b", "1K", "-e", "16K", "-n", "2", "-w", "1", "--html", str(self.path)])
        self.assert_exit(result, 0)

    def test_it_is_read_and_seen(self):
        browser = Browser(self.path)
        self.assertEqual(browser.evaluate("document.querySelectorAll('h2').length"), "10")
        self.assertEqual(browser.evaluate("document.querySelectorAll('svg').length"), "18")  # a barrier has no sizes
        self.assertEqual(browser.evaluate("performance.getEntriesByType('resource').length"), "0")
        self.assertEqual(browser.evaluate("document.documentElement.scrollWidth <= 500", width=500), "true")
        light, dark = browser.screenshot(), browser.screenshot(dark=True)
        self.assertEqual(light.pixel(2, 2), WHITE)
        self.assertEqual(dark.pixel(2, 2), NIGHT)
        self.assertIn(BLUE, light.colours(1))
        self.assertIn(LIGHT_BLUE, dark.colours(1))


if __name__ == "__main__":
    chromium()
    main()
