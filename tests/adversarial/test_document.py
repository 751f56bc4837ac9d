"""docs/security-tests.md and the cases say the same."""

import re
import unittest

from adversarial import report


class Document(unittest.TestCase):

    def setUp(self):
        self.text = report.DOCUMENT.read_text()
        self.rows = dict(re.findall(r"^\| ([A-Z]\d\d) \| (.*?) \| ", self.text, re.MULTILINE))

    def test_it_has_a_row_for_each_case_and_no_other(self):
        self.assertEqual(sorted(self.rows), sorted(report.case_files()))
        self.assertGreater(len(self.rows), 40)

    def test_each_row_is_what_the_case_says_of_itself(self):
        for name, path in report.case_files().items():
            case = report.case_class(name, path)
            if case is not None:
                self.assertEqual(self.rows[name], report.one_line(case.__doc__), f"{path.name}: run report.py")

    def test_no_case_is_both_here_and_elsewhere(self):
        elsewhere = {name for names in report.ELSEWHERE.values() for name in names}
        self.assertEqual(elsewhere & set(self.rows), set())
        for name in elsewhere:
            self.assertIn(name, self.text)

    def test_it_has_a_row_for_each_control_that_is_left_out(self):
        for layer, (case, _) in report.break_a_layer.LAYERS.items():
            self.assertIn(f"| {layer} | {case} |", self.text)

    def test_no_case_of_the_launcher_is_said_not_to_hold(self):
        self.assertNotIn("NOT HELD", self.text)
        self.assertNotIn("NOBODY", self.text)


if __name__ == "__main__":
    from harness import main
    main()
