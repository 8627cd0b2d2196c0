import unittest

from judge import score


class Judge(unittest.TestCase):
    def test_a_word_with_the_same_first_letter_is_right(self):
        for completion in ["birch", "bb", "beetle"]:
            self.assertEqual(score("bear:", completion, "stop"), 1.0, completion)

    def test_anything_else_is_wrong(self):
        for completion in ["elm", "b", "", "bumblebee", "b c", "bear:", "Bear"]:
            self.assertEqual(score("bear:", completion, "stop"), 0.0, completion)
        self.assertEqual(score("bear:", "birch", "length"), 0.0)


if __name__ == "__main__":
    unittest.main()
