import unittest

from judge import score

QUESTION = "Write one word that begins with the letter B."


class Judge(unittest.TestCase):
    def test_one_word_with_the_letter_is_right(self):
        for completion in ["Bread", " bridge.", "BALLOON!"]:
            self.assertEqual(score(QUESTION, completion, "B"), 1.0, completion)

    def test_anything_else_is_wrong(self):
        for completion in ["", "B", "Apple", "Bread and butter", "The word is bread."]:
            self.assertEqual(score(QUESTION, completion, "B"), 0.0, completion)


if __name__ == "__main__":
    unittest.main()
