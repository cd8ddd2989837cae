"""Forms of passages about invented places, people, animals and machines; slots in braces are filled by chance."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TextForm:
    """Places of a text with the sentences that may stand there; questions that any choice of them answers."""

    places: tuple[tuple[str, ...], ...]
    questions: tuple[str, ...]


FORMS = (
    TextForm(
        (
            (
                "The {building} in {town} will stay closed until {month}, the council said on {day}.",
                "After {few} months of repairs, the {building} in {town} will not open before {month}.",
            ),
            (
                "Engineers had found cracks in the {part}, which is more than {age} years old.",
                "During an inspection in {month2}, water was found behind the {part}.",
            ),
            (
                "The work is expected to cost {money} dollars, {percent} per cent more than planned.",
                "So far {money} dollars have been spent, and the council expects to need {percent} per cent more.",
            ),
            (
                "{name} {surname}, who lives next to it, said that the noise had become hard to bear.",
                "\u201cWe were promised that it would be over by now,\u201d said {name} {surname}, a {trade} from the "
                "same street.",
            ),
            (
                "About {hundreds} people used the {building} every week before it closed.",
                "Before it closed, it had {hundreds} visitors a week, most of them from the villages around {town}.",
            ),
            (
                "Until then a tent on the market square is to take its place.",
                "Classes and meetings have moved to the old fire station.",
                "A bus takes visitors to {town2} in the meantime, free of charge.",
            ),
        ),
        (
            "Until when is the {building} closed?",
            "What does the work cost?",
            "Who complained, and about what?",
            "How many people used the {building} before it closed?",
            "What was wrong with the building?",
        ),
    ),
    TextForm(
        (
            (
                "{name} {surname} was born in {town} in {year}, the youngest of {few} children of a {trade}.",
                "{name} {surname} ({year} to {later}) grew up in {town}, where both parents worked for a {trade}.",
            ),
            (
                "At the age of {small} the family moved to {town2}, where {name} went to a school run by the railway.",
                "A fire destroyed the family's house, and they moved to {town2} with {few} suitcases.",
            ),
            (
                "{name} learned the trade of a {trade2} and kept a notebook in which every working day was described.",
                "Trained as a {trade2}, {name} soon began to build instruments at night.",
            ),
            (
                "The first of {small} inventions was a lamp that went out by itself when nobody was in the room.",
                "In {later} a museum in {country} bought {small} drawings, which made the name known.",
            ),
            (
                "A journey to {country2} was meant to take {few} weeks and took {two} years.",
                "{name} lived in {country2} for {two} years and came back with a collection of {hundreds} seeds.",
            ),
            (
                "Today a bridge in {town} carries the name {surname}.",
                "The notebooks were found in {town2} by chance, {age} years later, behind a wardrobe.",
            ),
        ),
        (
            "Where did {name} {surname} grow up?",
            "Which trade did {name} {surname} learn?",
            "How long did {name} stay in {country2}?",
            "Why did the family move to {town2}?",
            "What is {name} {surname} remembered for?",
        ),
    ),
    TextForm(
        (
            (
                "The {colour} {bird} is a bird that breeds on the coast of {country} and winters in {country2}.",
                "In {country} the {colour} {bird} is called the {trade}'s bird, because its call sounds like a tool.",
            ),
            (
                "Adults weigh about {hundreds} grams and live for {small} years.",
                "It grows to a length of {big} centimetres, and a pair stays together for up to {small} years.",
            ),
            (
                "The nest, a hollow in the sand, holds {two} to {few} eggs, which both parents keep warm.",
                "The female lays {few} eggs in {month}, and the young can fly {big} days later.",
            ),
            (
                "It feeds on shells, worms and the seeds of beach grass, and it drinks salt water.",
                "In summer it eats insects; in winter it follows fishing boats.",
            ),
            (
                "In {year} only {hundreds} pairs were counted, {percent} per cent fewer than ten years before.",
                "Since {year} the number of pairs has fallen by {percent} per cent, mostly because of traffic "
                "on beaches.",
            ),
            (
                "A station near {town} now protects {few} kilometres of beach from {month} to {month2}.",
                "Volunteers led by {name} {surname} mark nests with {colour2} flags.",
            ),
        ),
        (
            "Where does the {colour} {bird} spend the year?",
            "What does the bird eat?",
            "How many eggs does it lay?",
            "How has the number of pairs changed?",
            "What is done to protect the bird?",
        ),
    ),
    TextForm(
        (
            (
                "Dear {name}, thank you for your letter of {date} {month}.",
                "Dear {name}, I am sorry that it has taken me {few} days to answer.",
            ),
            (
                "We would like to book the room on the first floor for {few} nights from {date} {month2}.",
                "My sister and I will arrive in {town} on {day} at about {hour} o'clock.",
            ),
            (
                "There will be {two} of us, and the dog, who is {few} years old and sleeps most of the time.",
                "We are bringing {few} boxes of books for the school, so we need a place to park the van.",
            ),
            (
                "Your price of {price} dollars a night is fine; I have sent half of it to the {town2} office.",
                "I have paid {big} dollars in advance and will bring the rest.",
            ),
            (
                "Is it still true that the shop in the village closes at {hour}?",
                "Please let me know whether the ferry runs in {month2}.",
            ),
            (
                "If anything changes, my neighbour, a {trade}, can be reached at number {number}.",
                "In case we are late, {other} {surname} has a key.",
            ),
        ),
        (
            "Who comes, and when?",
            "What does the writer want to know?",
            "What has been paid so far?",
            "Whom can one turn to if something changes?",
        ),
    ),
    TextForm(
        (
            (
                "Minutes of the meeting of the {club} of {town}, {date} {month}, {hour}:30.",
                "The {club} of {town} met on {date} {month} in the back room of the {building}.",
            ),
            (
                "Present: {name} {surname} (chair), {other} {surname2} (treasurer) and {small} members.",
                "{name} {surname} chaired the meeting, and {other} {surname2} reported on the accounts.",
            ),
            (
                "There are {big} members, {few} more than a year ago, and {money} dollars in the bank.",
                "The accounts show {money} dollars; {few} members have not paid yet.",
            ),
            (
                "It was decided to buy {few} new {goods} and to sell the old ones at the fair in {month2}.",
                "The meeting agreed to raise the fee from {price} to {big} dollars a year, by {small} votes to {two}.",
            ),
            (
                "A trip to {town2} was put off, because nobody wanted to organise it.",
                "{other} {surname2} asked again for a key to the cupboard; this was not decided.",
            ),
            (
                "The next meeting is on {date2} {month2} at the same place.",
                "The chair closed the meeting at {number} minutes past nine. The next one is on {date2} {month2}.",
            ),
        ),
        (
            "What was decided?",
            "How much money does the {club} have?",
            "Who was in the chair?",
            "When is the next meeting?",
            "What was left open?",
        ),
    ),
    TextForm(
        (
            (
                "A study with {hundreds} people in {country} asked how {habit} changes sleep.",
                "Researchers in {town} followed {hundreds} adults for {few} months to learn what {habit} does "
                "to sleep.",
            ),
            (
                "Half of them were asked to stop, the other half went on as before.",
                "They were divided into {two} groups by lot.",
            ),
            (
                "After {few} weeks, the first group slept {number} minutes longer on average.",
                "The difference was largest at the weekend, with {number} minutes, and smallest on {day}.",
            ),
            (
                "{percent} per cent of the participants left the study early.",
                "Not everybody kept a diary: only {percent} per cent filled in every page.",
            ),
            (
                "\u201cThe effect is small but it is there,\u201d said {name} {surname}, who led the study.",
                "{name} {surname}, a {trade} who was not involved, calls the result plausible but wants it repeated.",
            ),
            (
                "The results have not been checked by others yet.",
                "A second study with older people is to begin in {month}.",
            ),
        ),
        (
            "What did the study find?",
            "How many people took part?",
            "What are the limits of the study?",
            "How were the groups made?",
        ),
    ),
    TextForm(
        (
            (
                "When {name} opened the shop on {day}, {few} {goods} were missing from the shelf by the door.",
                "On the last {day} of {month}, {name} found a parcel with {few} {goods} on the steps of the "
                "{building}.",
            ),
            (
                "There was no note, only the smell of paint and a {colour} thread on the handle.",
                "Somebody had drawn a small {bird} on the window, in {colour} chalk.",
            ),
            (
                "{other}, the {trade} from across the street, had seen nothing and heard everything.",
                "{name} asked {other}, who had been a {trade} for {age} years and never asked questions.",
            ),
            (
                "They walked to the river together, past the {building}, without a word.",
                "\u201cIt will come back,\u201d said {other}. \u201cThings do, in {town}.\u201d",
            ),
            (
                "By {hour} o'clock it had begun to rain, and the street was empty.",
                "At {hour} the lights went out in the whole of {town}.",
            ),
            (
                "Only in {month2} did {name} understand what the drawing had meant.",
                "{name} kept the thread in a tin, next to {two} old keys that fitted no door.",
            ),
        ),
        (
            "What did {name} notice first?",
            "What is {other}'s trade?",
            "Where does the story take place?",
            "What trace was left behind?",
        ),
    ),
    TextForm(
        (
            (
                "The {town} {thing} is a machine that turns {goods} into compost within {few} days.",
                "Thank you for buying the {town} {thing}, model {number}.",
            ),
            (
                "Fill it with at most {small} litres of water and wait until the {colour} light comes on.",
                "Before first use, rinse the container {two} times and let it dry for {few} hours.",
            ),
            (
                "Press the left button for a short programme ({number} minutes) or the right one for a long one "
                "({large} minutes).",
                "It uses {hundreds} watts and switches itself off after {large} minutes.",
            ),
            (
                "Never move the machine while the {colour} light is on, and keep it away from {animals}.",
                "Do not use it outdoors, and do not open the lid while it is running.",
            ),
            (
                "Clean the filter every {few} weeks with warm water and without soap.",
                "A new filter costs {price} dollars and lasts for about {small} months.",
            ),
            (
                "If it does not start, check the cable, wait {number} seconds and try again.",
                "The guarantee is valid for {two} years and does not cover damage caused by salt.",
            ),
        ),
        (
            "How often must the filter be cleaned or replaced?",
            "What must one never do?",
            "What should I do before first use?",
            "How long does the machine run?",
        ),
    ),
)
