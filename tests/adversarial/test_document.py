"""docs/security-tests.md and the cases say the same."""

import re
import unittest

from adversarial import report


class Document(unittest.TestCase):

    def setUp(self):
        self.text = report.DOCUMENT.read_text()
        launcher, _, _ = self.text.partition(report.ELSEWHERE_TITLE)
        self.rows = dict(re.findall(r"^\| ([A-Z]\d\d) \| (.*?) \| ", launcher, re.MULTILINE))

    def test_it_has_a_row_for_each_case_and_no_other(self):
        self.assertEqual(sorted(self.rows), sorted(report.case_files()))
        self.assertGreater(len(self.rows), 40)

    def test_each_row_is_what_the_case_says_of_itself(self):
        for name, path in report.case_files().items():
            case = report.case_class(name, path)
            if case is not None:
                self.assertEqual(self.rows[name], report.one_line(case.__doc__), f"{path.name}: run report.py")

    def test_each_case_is_here_elsewhere_or_moot_and_in_one_place(self):
        places = [set(report.case_files()), set(report.ELSEWHERE), set(report.MOOT)]
        self.assertEqual(sum(map(len, places)), len(set.union(*places)))

    def test_what_is_tested_elsewhere_is_tested_there(self):
        for name, (_, tests) in report.ELSEWHERE.items():
            self.assertTrue(tests, name)
            for test in tests:
                path, of = test.split("::")
                wanted = f"def {of}(" if path.endswith(".py") else f'TEST_CASE("{of}")'
                self.assertIn(wanted, (report.ROOT / path).read_text(), f"{name}: {test}")

    def test_what_is_moot_stays_so(self):
        for room in ("launcher", "supervisor", "api"):
            for path in (report.ROOT / room).rglob("*.cpp"):
                self.assertNotRegex(path.read_text(), r"\bkill(pg)?\(-", str(path))

    def test_it_says_of_those_elsewhere_what_the_report_does(self):
        self.assertIn("\n\n".join(part.strip() for part in report.elsewhere()), self.text, "run report.py --elsewhere")

    def test_it_has_a_row_for_each_control_that_is_left_out(self):
        for layer, (case, _) in report.break_a_layer.LAYERS.items():
            self.assertIn(f"| {layer} | {case} |", self.text)

    def test_no_case_of_the_launcher_is_said_not_to_hold(self):
        self.assertNotIn("NOT HELD", self.text)
        self.assertNotIn("NOBODY", self.text)


if __name__ == "__main__":
    from harness import main
    main()
