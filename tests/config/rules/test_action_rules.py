"""What an action needs of the rest of the file, and that none sets itself off."""

from tests.cases import all_cases
from tests.config.elements.test_action import ECHO, actions, do, on, topic

PUBLISH = do("publish-message", topic("<Data>{}</Data>"))
TO_OTHERS = do("publish-message", topic("", "others"))
HOOK = "<Do><Module>webhook</Module><Options><Url>http://127.0.0.1:9/</Url><Data>x</Data></Options></Do>"
DELETE = do("delete-sow", topic("<Filter>1=1</Filter>"))
COPY = (
    "<ConflatedTopic><Name>others-C</Name><MessageType>json</MessageType>"
    "<UnderlyingTopic>others</UnderlyingTopic></ConflatedTopic></SOW>"
)


@all_cases(
    ("written", "element", "said"),
    [
        (on("schedule") + ECHO, "Module", "needs Every"),
        (on("startup", "<Every>1h</Every>") + ECHO, "Every", "is no option of Module startup"),
        (on("publish-message") + ECHO, "Module", "needs Topic"),
        (on("publish-message", topic("", "ordres")) + ECHO, "Topic", "did you mean orders?"),
        (on("publish-message", topic("", "others-C")) + ECHO, "Topic", "is no single topic"),
        (
            on("publish-message", topic("<MessageType>fix</MessageType>")) + ECHO,
            "MessageType",
            "has the message type json",
        ),
        (
            on("publish-message", topic("<Filter>BOOKMARK() = '1'</Filter>")) + ECHO,
            "Filter",
            "more than the fields",
        ),
        (on("oof-message", topic("<Type>match</Type>")) + ECHO, "Type", "there is none"),
        (on("startup") + do("publish-message", topic()), "Module", "has no Data"),
        (
            on("startup") + do("echo-message", "<Message>{{AMPS_DATA}}</Message>"),
            "Message",
            "is not known where",
        ),
        (
            on("publish-message", topic()) + do("echo-message", "<Message>{{AMPS_USER}}</Message>"),
            "Message",
            "is no variable of this server",
        ),
        (
            on("publish-message", topic("", "others"))
            + do("delete-sow", topic("<Filter>/id = '{{AMPS_DATA}}'</Filter>")),
            "Filter",
            "say what is deleted",
        ),
        (
            on("startup") + do("delete-sow", topic("<Filter>/id ==== 1</Filter>")),
            "Filter",
            "expected",
        ),
        (
            on("publish-message", topic("", "others"))
            + do("delete-sow", topic("<Filter>/{{AMPS_SOW_KEY}} = 1</Filter>")),
            "Filter",
            "has a variable outside of quotes",
        ),
        (
            on("publish-message", topic("", "others"))
            + do("delete-sow", topic("<Filter>$['{{AMPS_SOW_KEY}}'] = 1</Filter>")),
            "Filter",
            "has a variable outside of quotes",
        ),
        (
            on("publish-message", topic("", "others"))
            + do(
                "delete-sow",
                topic("<Filter>REGEXP_REPLACE(/a, '{{AMPS_SOW_KEY}}', '') = '1'</Filter>"),
            ),
            "Filter",
            "or in what a function is made of",
        ),
        (on("startup") + do("delete-sow", topic()), "Module", "needs Filter"),
        (on("startup") + HOOK, "Url", "the host 127.0.0.1 is not one of WebhookHosts"),
    ],
)
def test_what_does_not_fit_is_refused_with_what_to_write(instance, written, element, said):
    file = actions(written).replace("</SOW>", COPY)
    findings = instance(file).errors
    assert [one.element for one in findings] == [element], [*map(str, findings)]
    assert said in str(findings[0])


def test_a_host_that_is_listed_is_called(instance):
    hosts = "<WebhookHosts>127.0.0.1</WebhookHosts>"
    assert not instance(actions(on("startup") + HOOK, hosts=hosts)).findings


def test_names_are_unique(instance):
    named = on("startup", "<Name>a</Name>") + ECHO
    (error,) = instance(actions(named, named)).errors
    assert "is already used" in str(error)


def test_a_topic_without_keys_is_not_published_to(instance):
    file = actions(on("startup") + PUBLISH).replace("<Key>/id</Key>", "")
    assert "has no Key" in str(instance(file).errors[0])
    chained = "<Options><Primary>/id</Primary><Secondary>/of</Secondary></Options></KeyGenerator>"
    file = file.replace("</MessageType>", f"</MessageType><KeyGenerator>{chained}", 1)
    assert not instance(file).errors


ON_ORDERS = on("publish-message", topic())
ON_OTHERS = on("publish-message", topic("", "others"))
TO_ORDERS = do("publish-message", topic())


@all_cases(
    "written",
    [
        [ON_ORDERS + TO_ORDERS],
        [ON_ORDERS + TO_OTHERS, ON_OTHERS + TO_ORDERS],
        [on("oof-message", topic()) + DELETE],
        [on("oof-message", topic("<Type>delete</Type>")) + DELETE],
        [on("oof-message", topic("<Filter>/a=1</Filter>")) + TO_ORDERS],
    ],
)
def test_an_action_that_can_set_itself_off_is_refused_by_name(instance, written):
    errors = instance(actions(*written)).errors
    assert len(errors) == len(written)
    assert all("would set itself off" in str(error) for error in errors)
    assert "action 1" in str(errors[0])


@all_cases(
    "written",
    [
        [ON_ORDERS + TO_OTHERS],
        [ON_ORDERS + TO_OTHERS, ON_OTHERS + ECHO],
        [ON_ORDERS + DELETE],
        [on("oof-message", topic("<Type>expire</Type>")) + DELETE],
        [on("oof-message", topic()) + TO_ORDERS],
        [on("sow-expire-message", topic()) + TO_ORDERS],
    ],
)
def test_one_that_cannot_is_fine(instance, written):
    assert not instance(actions(*written)).findings


def test_lifetimes_and_dead_letters_close_a_circle_too(instance):
    expiring = actions(on("sow-expire-message", topic()) + TO_ORDERS)
    assert instance(
        expiring.replace("</Key></Topic>", "</Key><Expiration>1h</Expiration></Topic>")
    ).errors
    queue = (
        "<Queue><Name>jobs</Name><MessageType>json</MessageType><UnderlyingTopic>orders"
        "</UnderlyingTopic><MaxDeliveries>1</MaxDeliveries>"
        "<DeadLetterTopic>others</DeadLetterTopic></Queue></SOW>"
    )
    written = actions(ON_OTHERS + TO_ORDERS)
    assert not instance(written).findings
    assert "would set itself off" in str(instance(written.replace("</SOW>", queue)).errors[0])
