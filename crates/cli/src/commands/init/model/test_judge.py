import unittest

from judge import score


def judged(completion):
    """Calls the judge about one question. Leave out the arguments that your function does not have."""
    question = "Write one word that begins with the letter B."
    return score(question=question, completion=completion, reference="B")


class Judge(unittest.TestCase):
    def test_one_word_with_the_letter_is_right(self):
        for completion in ["Bread", " bridge.", "BALLOON!"]:
            self.assertEqual(judged(completion), 1.0, completion)

    def test_anything_else_is_wrong(self):
        for completion in ["", "B", "Apple", "Bread and butter", "The word is bread."]:
            self.assertEqual(judged(completion), 0.0, completion)


if __name__ == "__main__":
    unittest.main()
